"""Sleep: NodePools and namespaces whose nodes leave in given hours. See docs/how-to/sleep.md."""
