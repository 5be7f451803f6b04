"""NodePools of a named EC2NodeClass."""

from __future__ import annotations

import msgspec

from shiplap.manifests.custom_resources import NodePool


def of_class(made: NodePool, name: str) -> NodePool:
    spec = made.spec.template.spec
    reference = msgspec.structs.replace(spec.node_class_ref, name=name)
    template = msgspec.structs.replace(made.spec.template, spec=msgspec.structs.replace(spec, node_class_ref=reference))
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, template=template))
