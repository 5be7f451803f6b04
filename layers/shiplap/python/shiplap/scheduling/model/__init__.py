"""The data of a decision: snapshot, plan, pod classes and their constraints."""
