"""Reads YAML and JSON files into the manifests of one cluster and names every problem with file and line."""
