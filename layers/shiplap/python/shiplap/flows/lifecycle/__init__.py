"""The lifecycle flow: from launched to in service, and to the end of every claim."""
