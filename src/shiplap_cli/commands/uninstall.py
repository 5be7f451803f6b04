"""`shiplap uninstall`: takes the finalizers of an install from a cluster, so that nothing waits for what is not there.

NodeClaims come first. A running install writes a Node's finalizer only while its NodeClaim has one, so what is removed
in this order stays away.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from shiplap.cluster.client import KubernetesClient
from shiplap.cluster.kubeconfig import load
from shiplap.errors import ClusterError, InvalidInput, ObjectConflict, ObjectNotFound
from shiplap.kubernetes.objects import RawObject
from shiplap.manifests.live.nodeclaim_objects import FINALIZER, INSTALL_LABEL, finalizers_of
from shiplap.ports import ClusterApi
from shiplap_cli.inputs.context_access import enter_context
from shiplap_cli.output import Format, Output, Printed, emit, plain_table

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


class UninstallDocument(Printed, frozen=True):
    """What the command prints, NodeClaims first."""

    objects: tuple[ReleasedObject, ...] = ()


def uninstall(
    *,
    install: Annotated[str, typer.Option(help="Only of this install; needed where a cluster has objects of two.")] = "",
    context: Annotated[str, typer.Option(help="A context of the kubeconfig; the current one without.")] = "",
    kubeconfig: Annotated[Path | None, typer.Option(help="$KUBECONFIG or ~/.kube/config without.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Removes the finalizers of an install from the NodeClaims and Nodes of a cluster with `manifests: cluster`.

    Run it before `cdk destroy`, and once more afterwards: else `kubectl delete` of a NodeClaim or Node waits for ever.
    It asks no AWS account and ends no instance. It prints the instances that still run; end them by `kubectl delete
    nodeclaims --all` before you run it.

    Exit code 0 when no finalizer is left, 1 when one is, 2 for bad input.

    Example: shiplap uninstall --context prod
    """
    access = load(kubeconfig, context, environment=os.environ, home=Path.home())
    transport = enter_context(access, clock=time.time, environment=os.environ, sleep=time.sleep)
    cluster = KubernetesClient(transport)
    try:
        held = held_objects(cluster, install)
        if held and not yes:
            _ask(held)
        document = release(cluster, held)
    except ClusterError as error:
        raise InvalidInput(f"context {access.context}", str(error)) from error
    rows = [(item.kind, item.name, item.instance, item.failure or "removed") for item in document.objects]
    emit(document, output, lambda: plain_table("kind", "name", "instance", "finalizer", rows=rows))
    return 1 if any(item.failure for item in document.objects) else 0


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


def _ask(held: Sequence[HeldObject]) -> None:
    """Raises InvalidInput where nobody can answer, and Abort where the answer is no."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidInput("uninstall", "asks before it changes a cluster; add --yes where nobody can answer")
    instances = sorted({item.instance for item in held if item.instance})
    sys.stderr.write(f"{len(instances)} instances are still there: {', '.join(instances)}\n")
    question = f"Remove the finalizers of {len(held)} objects? Their nodes are not drained any more by kubectl delete."
    typer.confirm(question, abort=True, err=True)


def release(cluster: ClusterApi, held: Sequence[HeldObject]) -> UninstallDocument:
    """Remove the finalizer from these objects, in this order; one that is refused holds up no other."""
    return UninstallDocument(
        tuple(
            ReleasedObject(item.kind, item.name, item.install, item.instance, _release(cluster, item)) for item in held
        )
    )


def _release(cluster: ClusterApi, item: HeldObject) -> str:
    """Why the object kept its finalizer; empty if it did not, or is gone. Raises ClusterError from fresh reads."""
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
