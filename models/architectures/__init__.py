"""Architectures: one file each, named as in conf/model."""
