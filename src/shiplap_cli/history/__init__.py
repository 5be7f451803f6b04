"""The history of one object in a live install, from recorded decisions and from its present state."""
