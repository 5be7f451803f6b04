"""A simulated cluster behind a real Kubernetes API: HTTP server, kube-scheduler, kubelets and a few controllers."""
