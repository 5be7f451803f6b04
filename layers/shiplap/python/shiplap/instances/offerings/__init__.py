"""The ways to buy an instance type: offerings, prices, subnets and the offerings that EC2 refused."""
