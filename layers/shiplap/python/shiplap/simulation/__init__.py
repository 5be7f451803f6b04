"""The whole of Shiplap in virtual time: real flows over in-memory twins, with everything going wrong that can."""
