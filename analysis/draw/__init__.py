"""Tables and figures: from a manifest to files."""
