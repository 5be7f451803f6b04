"""What a cluster costs this month, from the ledger of its install."""
