"""`shiplap top`: a live view of a cluster on a terminal. `frame`, `view`, `stream`, `saving` are pure."""
