"""What the runs found: saved results in, tables, figures and comparisons with the papers out.

Reads the results store only (DESIGN 7), and of ours but what says how it is laid out: it works on a machine that cannot
train, and on a sweep that is half finished. In a notebook:

    import rawls

    store = rawls.load("results")  # store.runs, store.history, store.groups, store.ledger
    print(rawls.describe("runs"))  # what the columns mean
"""

from rawls.analysis.read.columns import COLUMNS, describe
from rawls.analysis.read.load import Store, load

__all__ = ["COLUMNS", "Store", "describe", "load"]
