"""The training process: what it sets up, its memory, and the loop of a worker."""
