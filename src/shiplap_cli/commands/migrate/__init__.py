"""`shiplap migrate`: from another autoscaler's configuration to Shiplap's, and nodes that change hands.

All but `handover` is pure: documents in, documents out. What cannot be said in manifests is a finding, never dropped.
"""
