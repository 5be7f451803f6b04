"""`shiplap explain`: accounts of decisions and their parts, and the histories that an install recorded."""
