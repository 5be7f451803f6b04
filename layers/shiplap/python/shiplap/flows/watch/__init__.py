"""The watch flow: pods and nodes of clusters become events."""
