"""Layer 1: what EC2 sells and what a node of it really yields."""
