"""Faults of tables and of the bucket."""
