"""The search for gangs that fit: the most room that there is, and the gangs that are not tried now."""
