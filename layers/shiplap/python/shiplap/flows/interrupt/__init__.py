"""The interrupt flow: AWS takes an instance away."""
