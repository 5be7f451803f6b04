"""The memory of gangs that wait: what tries have found, so that gangs are tried again when that may have changed."""
