"""What the stack uploads: layers of third-party packages, the library and the settings, and the functions' code."""
