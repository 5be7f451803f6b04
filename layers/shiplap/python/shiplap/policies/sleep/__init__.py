"""Sleep: NodePools and namespaces whose nodes leave in given hours. See docs/sleep.md."""
