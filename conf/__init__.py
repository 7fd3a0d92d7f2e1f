"""Hydra's configuration groups: YAML only, this module makes them a package that can be installed."""
