"""Floor 1: what users write, read, defaulted and validated."""
