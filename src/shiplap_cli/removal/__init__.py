"""The end of an install: its nodes, its finalizers, its stack and its data, in this order."""
