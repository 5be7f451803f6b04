"""The schedule flow: pods pending in, instances out."""
