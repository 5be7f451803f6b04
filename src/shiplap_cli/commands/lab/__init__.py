"""`shiplap lab`: Shiplap without AWS, live or in virtual time."""
