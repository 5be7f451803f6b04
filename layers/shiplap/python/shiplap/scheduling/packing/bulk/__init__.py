"""The bulk stage: most pods of a large batch are placed in closed form, before `pack` places the rest one by one.

It decides the pool tier and the domain of all pods that are alike but for their size at once (`size_classes`,
`allotment`), fills new nodes per tier and domain (`first_fit`), and turns these into claims that are checked like any
other (`settling`). Pods that it does not
understand are left to `pack`.
"""
