"""Layer 1: the manifests that users write, with defaults, tiers, annotations and hashes."""
