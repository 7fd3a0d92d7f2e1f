"""The command line: one file of commands, and what several of them read."""
