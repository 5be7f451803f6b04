"""The finalizers of an install on NodeClaims and Nodes, without which nothing waits for functions that are gone.

NodeClaims come first. A running install writes a Node's finalizer only while its NodeClaim has one, so what is removed
in this order stays away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from shiplap.errors import ClusterError, InvalidInput, ObjectConflict, ObjectNotFound
from shiplap.kubernetes.objects import RawObject
from shiplap.manifests.live.nodeclaim_objects import FINALIZER, INSTALL_LABEL, finalizers_of
from shiplap.ports import ClusterApi
from shiplap_cli.output import Printed

_TRIES = 5
"""Kubelets write to their Nodes every few seconds; each conflict is answered with a fresh read."""


class HeldObject(msgspec.Struct, frozen=True):
    """A NodeClaim or Node that has the finalizer, the id of its instance, and its version as it was read."""

    kind: str
    name: str
    install: str
    instance: str
    finalizers: tuple[str, ...]
    version: str


class ReleasedObject(Printed, frozen=True):
    """An object as the command prints it; `failure` says why it kept its finalizer, empty if it did not."""

    kind: str
    name: str
    install: str
    instance: str
    failure: str = ""


def held_objects(cluster: ClusterApi, install: str) -> tuple[HeldObject, ...]:
    """NodeClaims and Nodes with the finalizer and label of an install, NodeClaims first, each sorted by name.

    Args:
        cluster: asked for both lists.
        install: its name; empty for the only one that the cluster has objects of.

    Raises:
        InvalidInput: no name is given, and there are objects of several installs.
        ClusterError: the lists are refused.
    """
    found = [item for item in _all_held(cluster) if install in ("", item.install)]
    names = sorted({item.install for item in found})
    if len(names) > 1:
        raise InvalidInput("--install", f"the cluster has objects of {', '.join(names)}: name one of them")
    return tuple(sorted(found, key=lambda item: (item.kind == "Node", item.name)))


def _all_held(cluster: ClusterApi) -> Iterator[HeldObject]:
    for item in _node_claims(cluster):
        metadata = item["metadata"]
        of_install = (metadata.get("labels") or {}).get(INSTALL_LABEL, "")
        if of_install and FINALIZER in finalizers_of(item):
            instance = (item.get("status") or {}).get("providerID", "").rpartition("/")[2]
            version = metadata["resourceVersion"]
            yield HeldObject("NodeClaim", metadata["name"], of_install, instance, finalizers_of(item), version)
    for node in cluster.nodes():
        about = node.metadata
        of_install = about.labels.get(INSTALL_LABEL, "")
        if of_install and FINALIZER in about.finalizers:
            instance = node.spec.provider_id.rpartition("/")[2]
            yield HeldObject("Node", about.name, of_install, instance, about.finalizers, about.resource_version)


def _node_claims(cluster: ClusterApi) -> tuple[RawObject, ...]:
    try:
        return cluster.node_claim_objects()
    except ObjectNotFound:  # the CRD has gone, its objects with it
        return ()


def release(cluster: ClusterApi, held: Sequence[HeldObject]) -> tuple[ReleasedObject, ...]:
    """Remove the finalizer from these objects, in this order; one that is refused holds up no other."""
    return tuple(
        ReleasedObject(item.kind, item.name, item.install, item.instance, _release(cluster, item)) for item in held
    )


def _release(cluster: ClusterApi, item: HeldObject) -> str:
    """Return why the object kept its finalizer; empty if it did not, or is gone. Raises ClusterError."""
    failure = ""
    for _ in range(_TRIES):
        others = [name for name in item.finalizers if name != FINALIZER]
        try:
            cluster.set_finalizers(item.kind, item.name, others, resource_version=item.version)
        except ObjectNotFound:
            return ""
        except ObjectConflict as error:
            failure = str(error)
            same = (item.kind, item.name)
            fresh = next((each for each in _all_held(cluster) if (each.kind, each.name) == same), None)
            if fresh is None:
                return ""
            item = fresh
        except ClusterError as error:
            return str(error)
        else:
            return ""
    return failure
