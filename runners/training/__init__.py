"""Training: from a composed configuration to the results of a fleet."""
