"""Manifests that are read from a cluster: what they may name, what was last read, what is shown in return."""
