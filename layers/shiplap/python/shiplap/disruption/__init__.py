"""Floor 2: pure disruption decisions."""
