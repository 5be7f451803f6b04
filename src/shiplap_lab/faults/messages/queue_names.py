"""The queues that campaigns draw."""

from __future__ import annotations

QUEUES = ("provisioning", "lifecycle", "interruption", "*")
