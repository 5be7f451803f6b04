"""Floor 5: the effects, one module per flow."""
