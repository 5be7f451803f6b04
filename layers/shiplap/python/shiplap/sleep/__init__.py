"""Sleep: NodePools and namespaces that need no nodes at certain hours, which of their pods wait and who wakes them."""
