"""`shiplap capacity`: the capacity that nodes reported."""
