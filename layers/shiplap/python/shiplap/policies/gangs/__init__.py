"""Gangs: pods that are of use only together get all their nodes or none. See docs/how-to/gangs.md."""
