"""The simulation: runs of scenarios with faults drawn from seeds, and campaigns of many seeds."""
