"""Pods of leaving nodes move by restarts of their Deployments, so that none is missing meanwhile."""
