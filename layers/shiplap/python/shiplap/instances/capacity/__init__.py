"""The resources that a node of an instance type yields: described, estimated and learned."""
