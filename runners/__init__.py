"""Runs, sweeps and the command line: what joins datasets, models, algorithms and accounting."""
