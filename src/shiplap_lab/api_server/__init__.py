"""An API server's store in memory: what clients of Kubernetes rely on, without HTTP."""
