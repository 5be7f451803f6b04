"""Spot offerings that are interrupted often are asked for less. See docs/spot-risk.md."""
