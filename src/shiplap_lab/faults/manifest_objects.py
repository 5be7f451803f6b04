"""The manifests of a run as objects of its clusters, as the active faults want them.

Faults of several kinds may last at once. When the last one is over the objects are as the scenario has them, so that
the run must come to rest as any other. Nobody reaches the objects of a cluster whose API server is down: what was to
happen then happens afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Protocol

import msgspec

from shiplap.flows.claim_events import pods_pending
from shiplap.flows.messages import MANIFESTS_CHANGED
from shiplap.manifests.custom_resources import Manifests
from shiplap.ports import BusEvent
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.faults.active_faults import ActiveFaults
from shiplap_lab.faults.fault import Fault

NODE_ROLE = "node"
NODE_CLASSES = "ec2nodeclasses"
_RETRY_S = 5.0


class ManifestEditor(Protocol):
    """A kind of fault that changes NodePools while it lasts."""

    def removes_pools(self, cluster: str) -> bool: ...
    def edit(self, cluster: str, template: dict[str, Any]) -> None: ...


class ShownManifests:
    """The NodePools and EC2NodeClasses of each cluster. `tell` sends an event to the functions of every install.

    Attributes:
        editors: the kinds of faults that change them, in their order.
    """

    def __init__(
        self,
        faults: ActiveFaults,
        servers: Mapping[str, ApiServer],
        manifests: Mapping[str, Manifests],
        tell: Callable[[BusEvent], object],
    ) -> None:
        self.editors: list[ManifestEditor] = []
        self.servers = servers
        self._faults, self._tell = faults, tell
        self._bodies = {name: _objects(written) for name, written in manifests.items()}
        for name, bodies in self._bodies.items():
            for plural, body in bodies:
                servers[name].create(plural, body)

    def targets(self, fault: Fault) -> list[str]:
        """The clusters that a fault is about, by name."""
        return [name for name in sorted(self._bodies) if fnmatchcase(name, fault.target)]

    def first(self, cluster: str, plural: str = "nodepools") -> str:
        """The name of the first NodePool, or of the first EC2NodeClass."""
        name: str = next(body["metadata"]["name"] for kind, body in self._bodies[cluster] if kind == plural)
        return name

    def when_up(self, act: Callable[[], object]) -> None:
        """Act as soon as the API server answers."""
        if self._faults.is_api_down:
            self._faults.loop.after(_RETRY_S, partial(self.when_up, act))
        else:
            act()

    def show_all(self) -> None:
        """Make the NodePools of all clusters as the active faults want them."""
        for name, bodies in self._bodies.items():
            before = self.servers[name].resource_version
            self._show(name, [body for plural, body in bodies if plural == "nodepools"])
            if self.servers[name].resource_version != before:
                self.tell(name)

    def tell(self, cluster: str) -> None:
        """Send the hint that the watch function would send."""
        event_id = f"{cluster}/manifests/{self.servers[cluster].resource_version}"
        self._tell(pods_pending(cluster, (), MANIFESTS_CHANGED, self._faults.loop.now(), event_id=event_id))

    def _show(self, cluster: str, pools: Sequence[dict[str, Any]]) -> None:
        server = self.servers[cluster]
        there = {item["metadata"]["name"] for item in server.list("nodepools").items}
        if any(editor.removes_pools(cluster) for editor in self.editors):
            for name in sorted(there):
                server.delete("nodepools", name)
            return
        for body in pools:
            if body["metadata"]["name"] not in there:
                server.create("nodepools", body)
        self._edit_first(cluster, pools[0])

    def _edit_first(self, cluster: str, body: dict[str, Any]) -> None:
        expiry = body["spec"]["template"]["spec"]["expireAfter"]
        template: dict[str, Any] = {"metadata": {"labels": {"wobble": None}}, "spec": {"expireAfter": expiry}}
        for editor in self.editors:
            editor.edit(cluster, template)
        self.servers[cluster].patch("nodepools", body["metadata"]["name"], {"spec": {"template": template}})


def _objects(manifests: Manifests) -> Sequence[tuple[str, dict[str, Any]]]:
    """A cluster's NodePools and EC2NodeClasses as users write them, by the plural of their kind."""
    found: list[tuple[str, dict[str, Any]]] = []
    names = {pool.spec.template.spec.node_class_ref.name for pool in manifests.node_pools}
    for name in sorted(names):
        spec = {
            "role": NODE_ROLE,
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"tags": {"shiplap": "simulation"}}],
            "securityGroupSelectorTerms": [{"tags": {"shiplap": "simulation"}}],
        }
        body = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": name}, "spec": spec}
        found.append((NODE_CLASSES, body))
    for pool in manifests.node_pools:
        written: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(pool))
        reference = written["spec"]["template"]["spec"]["nodeClassRef"]
        reference |= {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass"}
        written["spec"]["template"]["spec"].setdefault("expireAfter", "720h")
        if not written["spec"].get("weight"):
            written["spec"].pop("weight", None)
        found.append(("nodepools", {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", **written}))
    return found
