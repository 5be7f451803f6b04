"""The controllers of workloads: Deployments, ReplicaSets, StatefulSets, Jobs, DaemonSets, and what goes with owners."""
