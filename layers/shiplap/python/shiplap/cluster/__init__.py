"""Floor 4: the Kubernetes API client behind the ClusterApi port."""
