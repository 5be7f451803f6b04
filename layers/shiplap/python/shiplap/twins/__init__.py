"""Floor 3: in-memory twins of the ports: fast, deterministic, with faults; used by tests and by the simulator."""
