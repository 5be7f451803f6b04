"""Which nodes leave because their pods sleep."""
