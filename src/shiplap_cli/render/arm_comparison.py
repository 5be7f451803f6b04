"""Compares the cost of named workloads on arm64: plans their pods onto new nodes twice, as they are and on arm64 only.

Both plans have no nodes to begin with, so that room on existing nodes does not hide the difference. What images are
built for is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.table import Column
from rich.text import Text

from shiplap.errors import InvalidInput
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import TERMINAL_PHASES, NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, Pod
from shiplap.manifests.custom_resources import NodePool, RequirementSpec
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap_cli.inputs.pod_templates.pod_sets import makers_of_sets
from shiplap_cli.inputs.pod_templates.workload_objects import KINDS
from shiplap_cli.inputs.workloads import deployment_of_pod
from shiplap_cli.output import Printed, counted, grouped, plain_table, summary, warning_line
from shiplap_cli.render.totals import pending_pod

ARM64 = "arm64"
_KEYS = frozenset({labels.ARCH, "beta.kubernetes.io/arch"})


class NamedWorkload(msgspec.Struct, frozen=True):
    """A workload as an option names it; kind and namespace may be empty."""

    kind: str
    namespace: str
    name: str

    def owns(self, pod: Pod) -> bool:
        """True if a pod is of the workload, also through a ReplicaSet of its Deployment or a Job of its JobSet."""
        if self.namespace not in ("", pod.metadata.namespace or "default"):
            return False
        if self.kind == "" and self.name in makers_of_sets(pod):
            return True
        owner = next((each for each in pod.metadata.owner_references if each.controller), None)
        if owner is None:
            return self.kind == "" and self.name == pod.metadata.name
        owners = {(owner.kind.lower(), owner.name)}
        if owner.kind == "ReplicaSet":
            owners.add(("deployment", deployment_of_pod(pod, owner.name)))
        return any(self.kind in ("", kind) and self.name == name for kind, name in owners)


class ArchitectureSide(Printed, frozen=True):
    """One of the plans: nodes by instance type, and the message of each pod without a place."""

    nodes: int
    hourly: float
    instance_types: dict[str, int]
    left_out: dict[str, str]


class ArmDocument(Printed, frozen=True):
    """The output of `shiplap plan --arm`; `pods` counts those of the workloads."""

    workloads: tuple[str, ...]
    pods: int
    as_they_are: ArchitectureSide
    arm64: ArchitectureSide
    note: str = "The architectures of images are not checked: `docker buildx imagetools inspect IMAGE` lists them."


def read_named(text: str) -> NamedWorkload:
    """Read `[KIND/][NAMESPACE/]NAME`. Raises InvalidInput."""
    *before, name = text.split("/")
    kinds = {kind.lower() for kind in KINDS}
    kind = before.pop(0).lower() if before and before[0].lower() in kinds else ""
    if not name or len(before) > 1:
        raise InvalidInput("--arm", f"{text!r} is not of the form [KIND/][NAMESPACE/]NAME")
    return NamedWorkload(kind, before[0] if before else "", name)


def workload_pods(snapshot: Snapshot, named: Sequence[NamedWorkload]) -> tuple[Pod, ...]:
    """The living pods of the workloads, as pods that wait. Raises InvalidInput: a workload has none."""
    living = [pod for pod in snapshot.view.pods if pod.status.phase not in TERMINAL_PHASES]
    for workload in named:
        if not any(map(workload.owns, living)):
            raise InvalidInput("--arm", f"{workload.name} has no pods; a workload in files adds its own")
    return tuple(pending_pod(pod) for pod in living if any(workload.owns(pod) for workload in named))


def on_new_nodes(snapshot: Snapshot, pods: Sequence[Pod]) -> Snapshot:
    """The pods alone, without any node or claim."""
    return replace(snapshot, view=replace(snapshot.view, pods=tuple(pods), nodes=()), claims=(), standalone_claims=())


def on_arm64(snapshot: Snapshot) -> Snapshot:
    """The same with pods and NodePools that ask for arm64 and for no other architecture."""
    pools = tuple(map(_arm_pool, snapshot.manifests.node_pools))
    view = replace(snapshot.view, pods=tuple(map(_arm_pod, snapshot.view.pods)))
    return replace(snapshot, view=view, manifests=replace(snapshot.manifests, node_pools=pools))


def _arm_pool(pool: NodePool) -> NodePool:
    template = pool.spec.template
    others = tuple(rule for rule in template.spec.requirements if rule.key not in _KEYS)
    rules = (*others, RequirementSpec(labels.ARCH, "In", (ARM64,)))
    plain = {key: value for key, value in template.metadata.labels.items() if key not in _KEYS}
    made = replace(
        template, spec=replace(template.spec, requirements=rules), metadata=replace(template.metadata, labels=plain)
    )
    return replace(pool, spec=replace(pool.spec, template=made))


def _arm_pod(pod: Pod) -> Pod:
    selector = {key: value for key, value in pod.spec.node_selector.items() if key not in _KEYS}
    affinity = pod.spec.affinity
    if affinity is not None and affinity.node_affinity is not None:
        affinity = replace(affinity, node_affinity=_without_architecture(affinity.node_affinity))
    spec = replace(pod.spec, node_selector={**selector, labels.ARCH: ARM64}, affinity=affinity)
    return replace(pod, spec=spec)


def _without_architecture(affinity: NodeAffinity) -> NodeAffinity | None:
    """A term that asked for nothing else is dropped, and with it all of them, for it now allows every node."""
    if affinity.required is None:
        return affinity
    terms = tuple(map(_term, affinity.required.node_selector_terms))
    free = any(not term.match_expressions and not term.match_fields for term in terms)
    return replace(affinity, required=None if free else replace(affinity.required, node_selector_terms=terms))


def _term(term: NodeSelectorTerm) -> NodeSelectorTerm:
    kept: list[NodeSelectorRequirement] = [rule for rule in term.match_expressions if rule.key not in _KEYS]
    return replace(term, match_expressions=tuple(kept))


def arm_page(document: ArmDocument) -> RenderableType:
    """Both plans beside each other, and what is left out."""
    both = (document.as_they_are, document.arm64)
    rows = [
        ("nodes", *(str(side.nodes) for side in both)),
        ("$/h", *(f"{side.hourly:.4f}" for side in both)),
        ("without a place", *(str(len(side.left_out)) for side in both)),
    ]
    right = [Column(name, justify="right") for name in ("as they are", "arm64")]
    lines: list[RenderableType] = [
        Text(f"{counted(document.pods, 'pod')} of {', '.join(document.workloads)}, on new nodes only", style="bold"),
        plain_table("", *right, rows=rows),
    ]
    for name, side in zip(("as they are", "arm64"), both, strict=True):
        types = ", ".join(f"{number} {kind}" for kind, number in side.instance_types.items())
        lines.append(Text(f"{name}: {types or 'no nodes'}"))
    if not any(side.left_out for side in both) and document.as_they_are.hourly:
        change = document.arm64.hourly - document.as_they_are.hourly
        share = change / document.as_they_are.hourly
        lines.append(Text(f"arm64 costs {change:+.4f} $/h ({share:+.1%})", style="bold"))
    for message, pods in grouped((message, pod) for pod, message in document.arm64.left_out.items()).items():
        lines.append(warning_line(f"without a place on arm64: {summary(pods)}: {message}"))
    lines.append(warning_line(document.note))
    return Group(*lines)


def architecture_side(plan: Plan) -> ArchitectureSide:
    """The sums of a plan."""
    types = sorted(claim.launch.instance_type for claim in plan.node_claims)
    return ArchitectureSide(
        nodes=len(types),
        hourly=round(plan.hourly, 6),
        instance_types={name: types.count(name) for name in dict.fromkeys(types)},
        left_out={entry.pod.key: entry.message for entry in plan.unschedulable},
    )
