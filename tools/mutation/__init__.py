"""Mutation testing: one operator, constant or condition is changed, and some test should fail."""
