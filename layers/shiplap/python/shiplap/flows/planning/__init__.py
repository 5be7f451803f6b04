"""From the state of a cluster to the inputs of a decision, and from its plan to committed claims."""
