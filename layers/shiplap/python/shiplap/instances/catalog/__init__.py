"""The instance-type catalogue: raw from EC2, and as one NodePool sees it."""
