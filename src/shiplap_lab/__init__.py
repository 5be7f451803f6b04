"""Imitations of the outside: fakes of the ports, simulated clusters, emulated AWS, and the simulation.

The layer of the Lambda functions never imports it.
"""
