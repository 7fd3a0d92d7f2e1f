"""The results store: one folder per run, plain files, and who is writing them."""
