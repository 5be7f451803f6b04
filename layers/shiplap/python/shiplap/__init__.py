"""Shiplap: an event-driven, serverless node provisioner for Kubernetes on AWS."""

__version__ = "0.2.0"
