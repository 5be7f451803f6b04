"""What pods can be placed on: NodePools compiled to templates, open claims, existing nodes."""
