"""Tracking: runs and drawn targets mirrored to Weights & Biases."""
