"""Faults of the requests that functions make: their effects."""
