"""The parts of a deployed install that commands read: outputs, claims, records, queues, metrics."""
