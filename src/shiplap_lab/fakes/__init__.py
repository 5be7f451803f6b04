"""In-memory fakes of the ports: fast, deterministic, with faults."""
