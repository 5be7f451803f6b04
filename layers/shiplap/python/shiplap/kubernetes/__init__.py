"""Layer 0: the parts of Kubernetes that every decision is written in, free of I/O."""
