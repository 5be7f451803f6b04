"""Everything that imitates the world: fakes of the ports, clusters, AWS, and the simulation.

The layer of the Lambda functions never imports it.
"""
