"""A trained model leaves: exported with all that says what it is, loaded again, and asked about other rows."""
