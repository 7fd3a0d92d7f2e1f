"""Attacks on released numbers, and the lower bounds on epsilon that follow from how well they do."""
