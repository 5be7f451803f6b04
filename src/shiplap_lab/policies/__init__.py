"""The parts of the laboratory that belong to optional features."""
