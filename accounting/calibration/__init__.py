"""Calibration: the least noise that keeps a run inside its budget, also group by group."""
