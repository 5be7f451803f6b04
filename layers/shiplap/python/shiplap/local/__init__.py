"""Floor 6: the embedded runtime: AWS emulators, a simulated cluster, scenarios."""
