"""From another autoscaler's configuration to Shiplap's: manifests, a report of what maps how, and the steps.

Pure: documents in, documents out. What cannot be said in manifests is a finding, never dropped.
"""
