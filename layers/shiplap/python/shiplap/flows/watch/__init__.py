"""The watch and audit flows: pods and nodes of clusters become events."""
