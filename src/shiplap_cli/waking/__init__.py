"""Ends the sleep of a cluster."""
