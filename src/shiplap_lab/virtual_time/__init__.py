"""The parts of the simulation: an install and its surroundings, driven by an event loop in virtual time."""
