"""Answers to an EC2NodeClass's selectors: AMIs, subnets, security groups, reservations."""
