"""Faults of functions: their clocks, containers, schedules and versions."""
