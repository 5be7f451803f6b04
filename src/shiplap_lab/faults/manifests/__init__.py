"""Faults of manifests that are objects of the clusters; `target` is a glob of clusters."""
