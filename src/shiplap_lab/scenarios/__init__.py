"""Scenarios that `shiplap simulate` and `shiplap dev` play: their format, the bundled ones, the pods they create."""
