"""`shiplap status`: one install, all installs, spending, and the end of sleep."""
