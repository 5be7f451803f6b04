"""What a node of an instance type yields: described, estimated and learned."""
