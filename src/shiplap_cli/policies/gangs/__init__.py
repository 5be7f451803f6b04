"""Gangs and ProvisioningRequests on the command line: how files describe them, and what is said of them."""
