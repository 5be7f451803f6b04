"""The port Compute on EC2: fleets, launch templates, dry runs and the pace of requests."""
