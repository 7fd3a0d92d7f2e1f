"""Events, accountants, calibration: how much privacy a run spends. Import from the modules."""
