"""An API server's storage in memory: what clients of Kubernetes rely on, without HTTP."""
