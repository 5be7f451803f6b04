"""EC2 on this machine: moto's catalogue and resources, with the behaviour of the real service added."""
