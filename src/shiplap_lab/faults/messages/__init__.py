"""Faults of messages in queues."""
