"""Topology constraints while a decision is made: counts, open domains and spreading."""
