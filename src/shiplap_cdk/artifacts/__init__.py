"""Builds what the stack uploads: layers of third-party packages, the library and the settings, and functions' code."""
