"""One folder for each command, named in `shiplap_cli.command_list`."""
