"""`shiplap init`: first files of an install that fit a cluster."""
