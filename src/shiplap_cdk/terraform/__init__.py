"""A Terraform module of an install, converted from the template that the CDK synthesises."""
