"""Faults of instances that run."""
