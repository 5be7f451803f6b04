"""Says why a pod has no place, in numbers."""
