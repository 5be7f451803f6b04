"""How an instance type can be bought: offerings, prices, subnets and what EC2 refused."""
