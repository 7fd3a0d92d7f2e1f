"""Configurations: their schema, how they are composed and checked, and the errors users can cause."""
