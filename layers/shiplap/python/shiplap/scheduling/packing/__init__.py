"""Places classes of pods on nodes and new claims."""
