"""The parts of the construct that belong to optional features: one module for each feature."""
