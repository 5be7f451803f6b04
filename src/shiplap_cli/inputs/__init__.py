"""The inputs of decisions: files, a live cluster, AWS."""
