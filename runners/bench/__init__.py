"""`rawls bench`: how fast and how large we are, beside Opacus and plain SGD, as ratios measured side by side."""
