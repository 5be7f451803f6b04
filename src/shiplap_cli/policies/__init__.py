"""The parts of the command line that belong to optional features: one module for each feature."""
