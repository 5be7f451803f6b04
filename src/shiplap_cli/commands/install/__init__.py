"""`shiplap install`: deploys an install, writes it as a template, moves it back, and ends it."""
