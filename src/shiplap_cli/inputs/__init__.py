"""What commands decide on: files, a live cluster, AWS."""
