"""The places for pods: NodePools compiled to templates, open claims, existing nodes."""
