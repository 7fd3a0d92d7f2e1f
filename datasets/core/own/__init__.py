"""What datasets of one's own files are made of: columns found in a file, their roles, and how they become inputs."""
