"""Whether nodes can be launched from an EC2NodeClass: conditions, dry runs, joins and early deaths."""
