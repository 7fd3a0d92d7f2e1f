"""Pages: the report in one file, and the dashboard."""
