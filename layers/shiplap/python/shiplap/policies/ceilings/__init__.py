"""Ceilings in dollars, and the ledger of what a cluster spends. See docs/how-to/ceilings.md."""
