"""All clusters of all installs on one screen: read in parallel, each install with the credentials of its profile."""
