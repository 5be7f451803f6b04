"""Scenarios that `shiplap lab simulate` and `shiplap lab dev` play: their format, the bundled ones, their pods."""
