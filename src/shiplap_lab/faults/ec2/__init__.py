"""Faults of EC2's answers and of what it sells."""
