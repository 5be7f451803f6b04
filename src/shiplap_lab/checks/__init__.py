"""Checks of a play: the invariants that always hold, and what a scenario's steps expect."""
