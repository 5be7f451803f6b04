"""The bulk stage: most pods of a large batch are placed in closed form, before `pack` places the rest one by one.

It decides the pool tier and the domain of all pods that are alike but for their size at once (`size_classes`,
`allotment`), fills new nodes per tier and domain (`first_fit`), and turns these into claims that are checked like any
other (`settling`). What it does not understand it leaves alone.
"""
