"""Repair: which conditions of nodes are bad for too long, and which sick nodes are kept."""
