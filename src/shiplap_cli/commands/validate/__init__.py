"""`shiplap validate`: checks manifests."""
