"""NodeClaims that users write: one node each, of no NodePool.

Everything but the amount of resources is what the template of a NodePool says, so it is kept in that form.
"""

from __future__ import annotations

import msgspec

from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import NodePool, NodePoolSpec, NodePoolTemplate, Quantity


class StandaloneClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    """A NodeClaim object that asks for a node.

    `claim` is the name under which its claim is stored: that of the object, or one with a part of its uid where an
    earlier object of its name is remembered. `created_at` is epoch seconds.
    """

    name: str
    uid: str
    template: NodePoolTemplate
    requests: dict[str, Quantity] = {}
    claim: str = ""
    created_at: float = 0.0

    @property
    def node_class(self) -> str:
        """The name of its EC2NodeClass."""
        return self.template.spec.node_class_ref.name

    def as_pool(self) -> NodePool:
        """A NodePool that launches what the object asks for; it has the name of the claim."""
        return NodePool(ObjectMeta(name=self.claim or self.name), NodePoolSpec(self.template))
