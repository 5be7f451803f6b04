"""Spot offerings that are interrupted often are asked for less. See docs/how-to/spot-risk.md."""
