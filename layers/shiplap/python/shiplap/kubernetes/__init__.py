"""Floor 0: the parts of Kubernetes every decision is written in, free of I/O."""
