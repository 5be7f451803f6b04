"""Builders of the objects that tests begin with; each has a plain default for what a test does not speak of."""
