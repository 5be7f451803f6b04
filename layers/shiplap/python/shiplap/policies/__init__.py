"""Optional features: each is one module or folder of pure functions, and may be deleted without anything else changing.

A policy takes part in decisions through its input (`scheduling.model.snapshot.PolicyInput`,
`disruption.methods.method.DisruptionMethod`, `disruption.disruption_snapshot.DisruptionInput`). The inputs are read by
`flows.policies`. Nothing outside of these two folders names a policy.
"""
