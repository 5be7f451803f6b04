"""Decides whether Shiplap can launch nodes from an EC2NodeClass: conditions, dry runs, joins and early deaths."""
