"""Backends: this machine, Ray, Slurm, torchrun."""
