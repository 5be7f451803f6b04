"""Shows the cost of a cluster this month, from the ledger of its install."""
