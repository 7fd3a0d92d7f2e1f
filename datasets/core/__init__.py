"""What datasets share: their base, splits, sources with checksums, simulated twins."""
