"""Layer 5: the flows, one folder for each function, and beside them what several flows share."""
