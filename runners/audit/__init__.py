"""Audits: attacks on a method as it trains, and what each must reject; `rawls audit` and tests/contracts run them."""
