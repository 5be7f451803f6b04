"""Judges from what crosses the ports as raw JSON. It shares no code with what it judges."""
