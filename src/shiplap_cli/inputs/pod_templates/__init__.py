"""Pods that templates in files lead to: what controllers and the admission of Kubernetes add."""
