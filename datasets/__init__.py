"""Datasets: one file each, with sources and checksums, groups, seeded splits and a simulated twin."""
