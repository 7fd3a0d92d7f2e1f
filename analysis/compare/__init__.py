"""Comparisons: with a paper, between methods, between any two sets of runs."""
