"""Savings Plans and Reserved Instances, whose nodes cost less. See docs/how-to/commitments.md."""
