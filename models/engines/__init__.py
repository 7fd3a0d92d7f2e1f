"""Engines: how per-sample gradients are limited, weighted and summed."""
