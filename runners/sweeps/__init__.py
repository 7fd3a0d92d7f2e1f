"""Sweeps: from an experiment or a grid to runs, and to Hydra's own plugins."""
