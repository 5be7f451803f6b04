"""The audit flow: pods that an audit log tells of become events."""
