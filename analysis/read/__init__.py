"""Saved results in: the store as tidy frames, manifests, and the numbers that the papers print."""
