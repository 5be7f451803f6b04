"""Deletion costs of pods: a ReplicaSet that is scaled down takes the pods first whose node should go first."""
