"""Faults of the simulation: one module for each kind says how it is drawn and what it does."""
