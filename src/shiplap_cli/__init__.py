"""The command `shiplap`."""
