"""Layer 2: pure disruption decisions."""
