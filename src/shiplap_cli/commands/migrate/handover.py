"""`shiplap migrate handover`: nodes of a cluster change hands between Karpenter and Shiplap, and no pod moves.

Each step may be repeated, and whatever ends the command, the next run goes on. The order is what keeps nodes safe: an
instance gets the tags of its new owner before it loses those of the former, and Shiplap lets go of a NodeClaim before
the claim ends, or it would take the object away with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from shiplap.aws import tags
from shiplap.cluster.client import KubernetesClient
from shiplap.cluster.kubeconfig import load
from shiplap.cluster.transport import MERGE_PATCH, Transport
from shiplap.errors import AwsError, ClusterError, InvalidInput, StoreError
from shiplap.flows.live_settings import LEASE_MARGIN_S
from shiplap.kubernetes.objects import RawObject
from shiplap.manifests.nodeclaim import FINAL, ClaimState
from shiplap.manifests.validation.live_objects import check_live_object, live_manifests, own_objects
from shiplap.ports import ClusterApi, StateStore
from shiplap.settings import ClusterSettings
from shiplap_cli.commands.migrate.handed_nodes import (
    SHIPLAPS_KEYS,
    Handover,
    HandoverNode,
    LeftNode,
    TaggedInstance,
    given_back_claim,
    given_back_node,
    instances_named,
    is_given_back,
    tags_of_karpenter,
    tags_of_shiplap,
    taken_again,
    to_karpenter,
    to_shiplap,
)
from shiplap_cli.inputs.context_access import enter_context
from shiplap_cli.installs.find_install import STACK, Stack, aws_client, find_install
from shiplap_cli.installs.installed import cluster_settings_of
from shiplap_cli.options import Context, Kubeconfig, Yes
from shiplap_cli.output import Format, Output, Printed, confirm, emit, plain_table

_BATCH = 100
_NODE_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
_NODES = "/api/v1/nodes"
GIVEN_BACK_REASON = "given back to Karpenter"


class Owner(StrEnum):
    """The provisioner that has the nodes after the command."""

    SHIPLAP = "shiplap"
    KARPENTER = "karpenter"


class HandedNode(Printed, frozen=True):
    """A node that changes hands; `failure` says what stopped it, empty if nothing did."""

    claim: str
    node: str
    instance: str
    node_pool: str
    failure: str = ""


class HandoverDocument(Printed, frozen=True):
    """The output of the command. Without `changed` it has changed nothing: it was a dry run."""

    to: str
    changed: bool
    nodes: tuple[HandedNode, ...] = ()
    done: tuple[str, ...] = ()
    left: tuple[LeftNode, ...] = ()


class TaggedInstances:
    """The instances of a Region and their tags. Every method raises AwsError."""

    def __init__(self, ec2: Any) -> None:
        self._ec2 = ec2

    def named(self, ids: Sequence[str]) -> dict[str, TaggedInstance]:
        """Return the instances of these ids that EC2 still shows, by id."""
        found: dict[str, TaggedInstance] = {}
        for start in range(0, len(ids), _BATCH):
            found |= self._described([{"Name": "instance-id", "Values": list(ids[start : start + _BATCH])}])
        return found

    def owned(self, cluster: str, install: str) -> dict[str, TaggedInstance]:
        """Return the instances of a cluster that carry the install's tag, by id."""
        return self._described([*tags.owned_by(cluster), {"Name": f"tag:{tags.INSTALL}", "Values": [install]}])

    def add(self, instance: str, added: Mapping[str, str]) -> None:
        """Write tags."""
        from shiplap.aws.ec2_errors import aws_errors  # noqa: PLC0415 - so that --help does not wait for botocore

        with aws_errors(f"tag {instance}"):
            self._ec2.create_tags(Resources=[instance], Tags=tags.written(added))

    def remove(self, instance: str, keys: Iterable[str]) -> None:
        """Take tags away, whatever their values."""
        from shiplap.aws.ec2_errors import aws_errors  # noqa: PLC0415 - as above

        with aws_errors(f"take tags off {instance}"):
            self._ec2.delete_tags(Resources=[instance], Tags=[{"Key": key} for key in keys])

    def _described(self, filters: list[Any]) -> dict[str, TaggedInstance]:
        from shiplap.aws.ec2_errors import aws_errors  # noqa: PLC0415 - as above

        with aws_errors("describe instances"):
            pages = self._ec2.get_paginator("describe_instances").paginate(Filters=filters)
            shown = [seen for page in pages for item in page["Reservations"] for seen in item["Instances"]]
        return {
            seen["InstanceId"]: TaggedInstance(
                seen["InstanceId"], seen["State"]["Name"], tags.read(seen.get("Tags", []))
            )
            for seen in shown
        }


def handover(
    *,
    cluster: Annotated[str, typer.Option("--cluster", help="The cluster, as the install names it.")],
    to: Annotated[Owner, typer.Option("--to", help="Who has the nodes afterwards.")],
    stack: Stack = STACK,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would change hands, and change nothing.")
    ] = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> int:
    """Hands the nodes of a cluster with `manifests: cluster` from Karpenter to Shiplap, or back. No pod moves.

    Stop Karpenter before either way. With --to shiplap the instances get the install's tags, and Shiplap adopts their
    nodes within three minutes. With --to karpenter they lose them, and the claims end without their instances.

    It runs with your own credentials: ec2:DescribeInstances, ec2:CreateTags, ec2:DeleteTags, those of `shiplap status`,
    and list and patch of NodeClaims and Nodes. A run that was cut short is made up for by the next one.

    Exit code 0 when every node has changed hands, 1 when one has not, 2 for bad input.

    Example: shiplap migrate handover --cluster prod --context prod --dry-run --to shiplap
    """
    install = find_install(bucket="", stack=stack, dev=False)
    settings = cluster_settings_of(install, cluster)
    if not settings.live_manifests:
        raise InvalidInput(
            "--cluster", f"{cluster} reads its manifests from files: set `manifests: cluster`, and deploy"
        )
    access = load(kubeconfig, context, environment=os.environ, home=Path.home())
    transport = enter_context(access, clock=time.time, environment=os.environ, sleep=time.sleep)
    instances = TaggedInstances(aws_client("ec2", settings.region))
    work = HandoverWork(settings, transport, instances, install.state(), time.time())
    try:
        work.require_no_karpenter()
        found = work.found(to)
        if found.nodes and not dry_run:
            if not yes:
                stays = [f"{item.claim} stays: {item.reason}" for item in found.left]
                confirm("migrate handover", f"Hand {len(found.nodes)} nodes to {to}?", stays, dry_run=True)
            document = work.hand(found, to)
        else:
            document = document_of(found, to, changed=False)
    except ClusterError as error:
        raise InvalidInput(f"context {access.context}", str(error)) from error
    rows = [(item.claim, item.node, item.instance, item.failure or "yes") for item in document.nodes]
    rows += [(name, "", "", "before") for name in document.done]
    rows += [(item.claim, "", "", f"no: {item.reason}") for item in document.left]
    emit(document, output, lambda: plain_table("nodeclaim", "node", "instance", "handed over", rows=rows))
    return 1 if document.left or any(item.failure for item in document.nodes) else 0


def document_of(
    found: Handover, to: Owner, *, changed: bool, failures: Mapping[str, str] | None = None
) -> HandoverDocument:
    """Return the nodes found, each with the failure that stopped it; `failures` are by the name of the claim."""
    failed = failures or {}
    return HandoverDocument(
        to=to.value,
        changed=changed,
        nodes=tuple(
            HandedNode(each.claim, each.node, each.instance, each.node_pool, failed.get(each.claim, ""))
            for each in found.nodes
        ),
        done=found.done,
        left=found.left,
    )


class HandoverWork:
    """A cluster, its install and the account, as one run of the command sees them; `now` in epoch seconds."""

    def __init__(
        self,
        settings: ClusterSettings,
        transport: Transport,
        instances: TaggedInstances,
        state: StateStore,
        now: float,
    ) -> None:
        self._settings, self._transport, self._instances, self._state = settings, transport, instances, state
        self._cluster: ClusterApi = KubernetesClient(transport)
        self._now = now
        self._objects: dict[str, RawObject] = {}

    def require_no_karpenter(self) -> None:
        """Raises InvalidInput while Karpenter holds its Lease, ClusterError."""
        namespace, _, name = self._settings.karpenter_lease.partition("/")
        lease = self._cluster.lease(namespace, name)
        try:
            held = lease is not None and lease.is_fresh(self._now, LEASE_MARGIN_S)
        except ValueError as error:
            raise InvalidInput(f"lease {self._settings.karpenter_lease}", str(error)) from error
        if held:
            raise InvalidInput(
                f"lease {self._settings.karpenter_lease}",
                f"Karpenter holds it: `kubectl -n {namespace} scale deployment karpenter --replicas=0`, and wait"
                f" {LEASE_MARGIN_S + 15:.0f} s",
            )

    def found(self, to: Owner) -> Handover:
        """Return the nodes that can change hands. Raises ClusterError, AwsError, StoreError."""
        objects, nodes = self._cluster.node_claim_objects(), self._cluster.nodes()
        self._objects = {str(item["metadata"]["name"]): item for item in objects}
        name, install = self._settings.name, self._settings.install
        if to is Owner.SHIPLAP:
            instances = self._instances.named(instances_named(objects))
            found = to_shiplap(objects, nodes, instances, self._pools(), name, install)
            return self._without_ended(found)
        return to_karpenter(self._state.claims(name), objects, nodes, self._instances.owned(name, install))

    def _pools(self) -> frozenset[str]:
        listed = own_objects(self._cluster.manifest_objects().all())
        live = live_manifests(check_live_object(item, self._settings.allowed) for item in listed)
        classes = {item.metadata.name for item in live.manifests.node_classes}
        pools = live.manifests.node_pools
        return frozenset(pool.metadata.name for pool in pools if pool.spec.template.spec.node_class_ref.name in classes)

    def _without_ended(self, found: Handover) -> Handover:
        """A claim that has ended is never written again, for an ended instance must not come back to life."""
        kept, left = [], list(found.left)
        for node in found.nodes:
            claim = self._state.claim(self._settings.name, node.claim)
            if claim is not None and claim.state in FINAL:
                left.append(LeftNode(node.claim, "it was Shiplap's before, and Shiplap takes no claim twice"))
            else:
                kept.append(node)
        return msgspec.structs.replace(found, nodes=tuple(kept), left=tuple(sorted(left)))

    def hand(self, found: Handover, to: Owner) -> HandoverDocument:
        """Hand over each node; one that fails stops no other."""
        failures: dict[str, str] = {}
        for node in found.nodes:
            try:
                if to is Owner.SHIPLAP:
                    self._take(node)
                else:
                    self._give_back(node)
            except (AwsError, ClusterError, StoreError) as error:
                failures[node.claim] = str(error)
        return document_of(found, to, changed=True, failures=failures)

    def _take(self, node: HandoverNode) -> None:
        """The tags come last: with them Shiplap adopts the node."""
        if is_given_back(self._objects[node.claim]):
            self._patch(f"{_NODE_CLAIMS}/{node.claim}", taken_again())
        self._instances.add(node.instance, tags_of_shiplap(node, self._settings.name, self._settings.install))

    def _give_back(self, node: HandoverNode) -> None:
        self._instances.add(node.instance, tags_of_karpenter(node, self._settings.name))
        self._patch(f"{_NODE_CLAIMS}/{node.claim}", given_back_claim())
        if node.node:
            self._patch(f"{_NODES}/{node.node}", given_back_node())
        claim = self._state.claim(self._settings.name, node.claim)
        if claim is not None and claim.state not in FINAL:
            self._state.advance(claim, ClaimState.GONE, failure=GIVEN_BACK_REASON, changed_at=self._now)
        self._instances.remove(node.instance, SHIPLAPS_KEYS)

    def _patch(self, path: str, body: Mapping[str, Any]) -> None:
        self._transport.send("PATCH", path, body, MERGE_PATCH)
