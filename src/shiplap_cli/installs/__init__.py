"""What commands find of a deployed install: outputs, claims, records, queues, metrics."""
