"""Layer 4: the Kubernetes API client behind the port ClusterApi."""
