"""Deletion costs within flows."""
