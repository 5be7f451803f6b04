"""Recorded decisions: what a decision looked at and what it concluded, so that it can be replayed and explained."""
