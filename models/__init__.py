"""One file per architecture, the per-sample gradient engines, and the check of which layers they take."""
