"""The schedule: which runs train together, where, and what is tried again."""
