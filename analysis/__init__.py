"""What the runs found: saved results in, tables, figures and comparisons with the papers out.

Reads the results store only (DESIGN 7) and nothing of ours: it works on a machine that cannot train, and on a
sweep that is half finished. In a notebook:

    import analysis

    store = analysis.load("results")  # store.runs, store.history, store.groups, store.ledger
    print(analysis.describe("runs"))  # what the columns mean
"""

from analysis.columns import COLUMNS, describe
from analysis.load import Store, load

__all__ = ["COLUMNS", "Store", "describe", "load"]
