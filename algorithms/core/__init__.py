"""What all methods share: the contract of a method, the private step, optimizers."""
