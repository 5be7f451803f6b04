"""How often spot takes instances back, learned from all clusters of an account, and what it means for launches."""
