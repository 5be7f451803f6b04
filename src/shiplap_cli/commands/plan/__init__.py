"""`shiplap plan`: what would be launched for a cluster."""
