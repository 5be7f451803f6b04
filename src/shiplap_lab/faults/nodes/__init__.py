"""Faults of machines and of the Nodes they register."""
