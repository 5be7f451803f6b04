"""Savings Plans and Reserved Instances: what is known of them, what is counted on, and what is left for new nodes."""
