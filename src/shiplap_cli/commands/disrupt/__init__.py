"""`shiplap disrupt`: what would be removed or replaced in a cluster."""
