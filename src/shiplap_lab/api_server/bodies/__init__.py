"""The bodies of requests to an API server: their types and formats, and the ways in which they change objects."""
