"""`shiplap init`: what an account and a cluster look like, and the first files of an install made of it."""
