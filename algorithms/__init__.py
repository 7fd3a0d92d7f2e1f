"""One readable file per method, in the order of its paper's pseudocode, and the one private step they all share."""
