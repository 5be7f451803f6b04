"""Records what the instances of clusters cost: the ledger of each cluster, and the counters of the account."""
