"""Dollars of instance time: what was spent, what running nodes may still cost this month, and ceilings on both."""
