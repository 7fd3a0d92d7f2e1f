"""What the runs found: saved results in, tables, figures and comparisons with the papers out.

Reads the results store only (DESIGN 7) and nothing of ours: it works on a machine that cannot train, and on a
sweep that is half finished.
"""

from analysis.load import Store, load

__all__ = ["Store", "load"]
