"""User data: what makes a booting instance a node of the cluster, per AMI family."""
