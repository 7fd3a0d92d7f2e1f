"""The mechanism: what a step releases, from which rows, with which noise, and the ledger of it."""
