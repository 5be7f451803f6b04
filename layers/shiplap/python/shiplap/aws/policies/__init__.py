"""Adapters of optional features: one module for each feature that has ports of its own."""
