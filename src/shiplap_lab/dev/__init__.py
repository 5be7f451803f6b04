"""`shiplap lab dev`: scenarios played in real time on this machine."""
