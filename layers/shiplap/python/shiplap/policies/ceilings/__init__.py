"""Ceilings in dollars on what clusters cost. See docs/how-to/ceilings.md."""
