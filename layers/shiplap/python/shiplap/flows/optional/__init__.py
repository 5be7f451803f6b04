"""Calls that no decision needs, and how long they may take."""
