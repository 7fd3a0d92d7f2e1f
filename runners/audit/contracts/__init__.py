"""Contracts: what must hold for every method, each checked on the real step and each rejecting its broken twins."""
