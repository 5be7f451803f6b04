"""A simulated cluster behind a real Kubernetes API: HTTP server, kube-scheduler, kubelets and controllers."""
