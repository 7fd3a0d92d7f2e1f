"""Statistics over seeds, and what privacy was spent."""
