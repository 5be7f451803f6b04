"""The instance-type catalogue that comes with the command line."""
