"""The cost search: fills bin-packing problems again, cheaper, within a counted effort."""
