"""Privacy sheets: what a run guarantees to whom, in words."""
