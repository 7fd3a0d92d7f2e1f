"""The suite's tests: the folders mirror the packages."""
