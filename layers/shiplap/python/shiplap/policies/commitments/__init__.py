"""Savings Plans and Reserved Instances, whose nodes cost less. See docs/commitments.md."""
