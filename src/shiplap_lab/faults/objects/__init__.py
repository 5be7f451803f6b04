"""Faults of a cluster's objects and watches."""
