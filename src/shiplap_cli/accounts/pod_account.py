"""The full account of one pod: its demands, the verdict of each template and node, its placement, its neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

import msgspec
import numpy as np
from msgspec.structs import replace

from shiplap.errors import InvalidInput
from shiplap.kubernetes.objects import TERMINAL_PHASES, Node, Pod, Toleration
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import format_resources
from shiplap.kubernetes.requirements import Requirements
from shiplap.kubernetes.taints import untolerated
from shiplap.manifests.nodeclaim import NodeClaim, PodReference
from shiplap.scheduling.explain.nearest import amount
from shiplap.scheduling.explain.unschedulable import Explainer
from shiplap.scheduling.model.pod_classes import PodClass, host_ports, node_terms
from shiplap.scheduling.model.pod_volumes import PodVolumes
from shiplap.scheduling.model.scheduling_plan import LaunchChoice, NearestMiss, Plan, is_asleep
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing.compiled_snapshot import CompiledSnapshot
from shiplap.scheduling.packing.pack import Packing
from shiplap.scheduling.planner import solve
from shiplap.scheduling.supply.existing_nodes import ExistingNode, label_of, meets
from shiplap_cli.accounts.claim_account import ClaimAccount, ClaimAccounts
from shiplap_cli.accounts.present_place import PresentPlace, place_in_words, present_place_of
from shiplap_cli.accounts.smallest_changes import ChangeProposal, change_proposals
from shiplap_cli.inputs.pod_templates.pod_sets import makers_of_sets
from shiplap_cli.output import Printed
from shiplap_cli.policy_views import planned_together

_EXAMPLES = 3


class PodDemands(Printed, frozen=True):
    """The demands of a pod in words; `alike` counts the pods planned together with it, itself included."""

    requests: dict[str, str]
    node_selection: tuple[str, ...] = ()
    tolerations: tuple[str, ...] = ()
    topology: tuple[str, ...] = ()
    host_ports: tuple[str, ...] = ()
    volumes: str = ""
    priority: int = 0
    alike: int = 1


class TemplateAccount(Printed, frozen=True):
    """One NodePool tier: `verdict` is `used`, `possible` or the kind of obstacle, `text` the obstacle in numbers."""

    name: str = msgspec.field(name="lane")
    node_pool: str
    tier: int
    verdict: str
    text: str = ""
    nearest: NearestMiss | None = None


class NodeSetAccount(Printed, frozen=True):
    """Nodes with one verdict on the pod: their number and the names of a few."""

    verdict: str
    nodes: int
    examples: tuple[str, ...]


class PodPlacement(Printed, frozen=True):
    """The place of a pod: a claim of this plan (`launch`, `account`) or a node, and which pods are placed there too."""

    name: str
    kind: str
    shared_with: tuple[str, ...] = ()
    launch: LaunchChoice | None = None
    account: ClaimAccount | None = None


class PodAccount(Printed, frozen=True):
    """`state` is placed, unschedulable, ignored, asleep or running; all else is placed before templates and nodes.

    `present` is the place of a pod that is on a node.
    """

    pod: str
    state: str
    message: str = ""
    nearest: NearestMiss | None = None
    asked: PodDemands | None = None
    home: PodPlacement | None = None
    templates: tuple[TemplateAccount, ...] = msgspec.field(default=(), name="lanes")
    nodes: tuple[NodeSetAccount, ...] = ()
    changes: tuple[ChangeProposal, ...] = ()
    present: PresentPlace | None = None


def pod_account_of(
    snapshot: Snapshot, decided: Plan, name: str, claims: Sequence[NodeClaim] | None = None
) -> PodAccount:
    """The account of the pod `namespace/name`, or `name` in the namespace default.

    Args:
        snapshot: what was decided on.
        decided: the plan made of it.
        name: the pod, or its workload, which stands for one of its pods: the first without a place, or else the first.
        claims: all of the install's; None where none is known.

    Raises:
        InvalidInput: there is no such pod; near names are listed.
    """
    key = name if "/" in name else f"default/{name}"
    pod = _named_pod(snapshot.view.pods, decided, key)
    if pod is None:
        for state, entries in (("unschedulable", decided.unschedulable), ("ignored", decided.ignored)):
            held_back = next((entry for entry in entries if entry.pod.key == key), None)
            if held_back is not None:
                return PodAccount(key, state, held_back.message)
        raise InvalidInput("pod", _unknown_pod(key, [pod.key for pod in snapshot.view.pods]))
    key = pod.key
    ignored = next((entry for entry in decided.ignored if entry.pod.key == key), None)
    if ignored is not None:
        return PodAccount(key, "ignored", ignored.message)
    asleep = next((entry for entry in decided.unschedulable if entry.pod.key == key and is_asleep(entry)), None)
    if asleep is not None:
        return PodAccount(key, "asleep", asleep.message)
    compiled, packing = solve(snapshot)
    pod_class = next(
        (pod_class for pod_class in compiled.classes if any(member.key == key for member in pod_class.members)), None
    )
    if pod_class is None:
        if pod.spec.node_name and pod.status.phase not in TERMINAL_PHASES and not pod.metadata.deletion_timestamp:
            present = present_place_of(snapshot, pod, claims)
            return PodAccount(key, "running", place_in_words(present), present=present)
        ended = f"has ended ({pod.status.phase}) or is being deleted: there is nothing to plan"
        return PodAccount(key, "running", ended)
    left = next((entry for entry in decided.unschedulable if entry.pod.key == key), None)
    home = _placement_of(compiled, decided, key)
    explainer = Explainer(compiled, packing)
    return PodAccount(
        key,
        "placed" if home is not None else "unschedulable",
        left.message if left is not None else "",
        left.nearest if left is not None else None,
        _demands_of(pod, pod_class) if not pod_class.problem else _written_demands(snapshot, pod, pod_class),
        home,
        () if pod_class.problem else _template_accounts(explainer, pod_class, decided, key),
        ()
        if pod_class.problem
        else nodes_account(compiled, packing, pod_class, snapshot.view.nodes, home.name if home else ""),
        change_proposals(snapshot, compiled, packing, key, planned_together(snapshot, key)) if left is not None else (),
    )


def _named_pod(pods: Iterable[Pod], decided: Plan, key: str) -> Pod | None:
    """Return the pod of this name, or one of the workload of this name: a pod without a place comes first."""
    lacking = {entry.pod.key for entry in decided.unschedulable}
    candidates = [pod for pod in pods if pod.key == key or key in _workload_keys(pod)]
    return min(
        candidates, key=lambda pod: (pod.key != key, pod.key not in lacking, len(pod.key), pod.key), default=None
    )


def _workload_keys(pod: Pod) -> Iterator[str]:
    """Yield the workloads that have made the pod: a Deployment by the names of its ReplicaSets, sets by labels."""
    yield from (f"{pod.metadata.namespace}/{name}" for name in makers_of_sets(pod))
    for owner in pod.metadata.owner_references:
        yield f"{pod.metadata.namespace}/{owner.name}"
        if owner.kind == "ReplicaSet":
            yield f"{pod.metadata.namespace}/{owner.name.rpartition('-')[0]}"


def _unknown_pod(key: str, known: Sequence[str]) -> str:
    near = get_close_matches(key, known, n=3, cutoff=0.5)
    near += [other for other in known if other.partition("/")[2] == key.partition("/")[2] and other not in near][:3]
    hint = f"; did you mean {', '.join(near)}?" if near else f"; it has {len(known)} pods"
    return f"there is no pod {key} in this cluster state{hint}"


def _demands_of(pod: Pod, pod_class: PodClass) -> PodDemands:
    demands = pod.spec.topology_spread_constraints
    affinity = pod.spec.affinity
    topology = [
        f"spread over {rule.topology_key}, maxSkew {rule.max_skew}, {rule.when_unsatisfiable}" for rule in demands
    ]
    if affinity is not None:
        for named, part in (("affinity", affinity.pod_affinity), ("anti-affinity", affinity.pod_anti_affinity)):
            topology += [f"pod {named} over {term.topology_key}" for term in (part.required if part else ())]
            preferred = part.preferred if part else ()
            topology += [f"preferred pod {named} over {entry.pod_affinity_term.topology_key}" for entry in preferred]
    attached = [f"{number} of {driver}" for driver, number in pod_class.volumes.private]
    attached += sorted(f"{claim} ({driver}, shared)" for driver, claim in pod_class.volumes.shared)
    return PodDemands(
        format_resources(pod_class.requests),
        tuple(_in_words(term) for term in pod_class.terms if term),
        tuple(map(_toleration, pod_class.tolerations)),
        tuple(topology),
        tuple(f"{port}/{protocol}" for port, protocol, _ in sorted(pod_class.ports)),
        ", ".join(attached),
        pod_class.priority,
        len(pod_class.members),
    )


def _written_demands(snapshot: Snapshot, pod: Pod, pod_class: PodClass) -> PodDemands:
    """The demands of a pod that is not planned as it is, as far as they can be read: its class has lost them."""
    try:
        requests = pod_requests(pod)
    except ValueError:
        requests = pod_class.requests
    try:
        terms = node_terms(pod.spec, strict=False)
    except ValueError:
        terms = pod_class.terms
    ports = host_ports(pod.spec)
    read = replace(pod_class, requests=requests, terms=terms, tolerations=pod.spec.tolerations, ports=ports)
    claims = [
        f'persistentvolumeclaim "{claim}"{f" ({name})" if name else ""}: {" or ".join(map(_in_words, alternatives))}'
        for claim, name, alternatives in PodVolumes(snapshot.view).of_claims(pod)
        if all(alternatives)
    ]
    return replace(_demands_of(pod, read), volumes=", ".join(claims))


def _in_words(term: Requirements) -> str:
    return " and ".join(str(term[key]) for key in sorted(term))


_SIGNS = {"Gt": ">", "Lt": "<"}


def _toleration(entry: Toleration) -> str:
    sign = _SIGNS.get(entry.operator, "=")
    value = f"{sign}{entry.value}" if entry.operator != "Exists" else ""
    return f"{entry.key or 'every taint'}{value}{f':{entry.effect}' if entry.effect else ''}"


def _placement_of(compiled: CompiledSnapshot, decided: Plan, key: str) -> PodPlacement | None:
    for claim in decided.node_claims:
        if any(pod.key == key for pod in claim.pods):
            account = ClaimAccounts(compiled).of(claim)
            return PodPlacement(claim.name, "claim", _other_pods(claim.pods, key), claim.launch, account)
    for node in decided.existing_nodes:
        if any(pod.key == key for pod in node.pods):
            existing = next((existing for existing in compiled.nodes.all if existing.name == node.name), None)
            kind = "claim in flight" if existing is not None and existing.template is not None else "node"
            return PodPlacement(node.name, kind, _other_pods(node.pods, key))
    return None


def _other_pods(pods: Iterable[PodReference], key: str) -> tuple[str, ...]:
    return tuple(pod.key for pod in pods if pod.key != key)


def _template_accounts(
    explainer: Explainer, pod_class: PodClass, decided: Plan, key: str
) -> tuple[TemplateAccount, ...]:
    used = next(((c.node_pool, c.tier) for c in decided.node_claims if any(pod.key == key for pod in c.pods)), None)
    result = []
    for verdict in explainer.verdicts(pod_class):
        template = verdict.template
        pool, tier = template.pool.metadata.name, template.tier.index
        if (pool, tier) == used:
            result.append(TemplateAccount(template.name, pool, tier, "used"))
        elif not verdict.kind:
            result.append(TemplateAccount(template.name, pool, tier, "possible", "could hold such a pod too"))
        else:
            miss = verdict.miss
            text = (
                f"{verdict.text}; {miss.text}" if miss is not None and miss.text not in verdict.text else verdict.text
            )
            result.append(
                TemplateAccount(template.name, pool, tier, verdict.kind, text, miss.nearest if miss else None)
            )
    return tuple(result)


def nodes_account(
    compiled: CompiledSnapshot, packing: Packing, pod_class: PodClass, nodes: Iterable[Node], home: str = ""
) -> tuple[NodeSetAccount, ...]:
    """The verdicts of nodes and claims in flight on one more pod of a class; equal verdicts are one entry."""
    requests = compiled.axis.vector(pod_class.requests)
    names: dict[str, list[str]] = {}
    short: dict[str, list[dict[str, int]]] = {}
    fits = packing.nodes.fits(pod_class, soft=True) if packing.nodes.all else np.zeros(0, np.bool_)
    takes = packing.nodes.count(pod_class, fits, requests) if packing.nodes.all else fits
    for index, existing in enumerate(packing.nodes.all):
        lacking = np.where(requests > 0, requests - packing.nodes.free[index], 0)
        verdict = _verdict_of_node(existing, pod_class, fits=bool(fits[index]))
        if existing.name == home:
            verdict = "holds the pod"
        elif not verdict and (lacking > 0).any():
            missing = compiled.axis.amounts(np.maximum(lacking, 0))
            verdict = f"short of {', '.join(missing)}"
            short.setdefault(verdict, []).append(missing)
        elif not verdict and not takes[index]:
            verdict = "a host port it needs is taken" if pod_class.ports else "too many volumes"
        names.setdefault(verdict or _verdict_of_full_node(pod_class), []).append(existing.name)
    known = {existing.name for existing in packing.nodes.all}
    for node in sorted(nodes, key=lambda node: node.metadata.name):
        if node.metadata.name not in known:
            names.setdefault(_why_excluded(node), []).append(node.metadata.name)
    ordered = sorted(names.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    return tuple(
        NodeSetAccount(verdict + _range(short.get(verdict, [])), len(members), tuple(members[:_EXAMPLES]))
        for verdict, members in ordered
    )


def _verdict_of_node(existing: ExistingNode, pod_class: PodClass, *, fits: bool) -> str:
    """Return the taint or label that keeps a class off a node; empty when none does."""
    if fits:
        return ""
    taint = untolerated(existing.taints, pod_class.tolerations, ignore_preferences=True)
    if taint is not None:
        return f"taint {taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect} is not tolerated"
    failing = [
        [entry for key, entry in sorted(term.items()) if not meets(label_of(existing, key), entry)]
        for term in pod_class.terms
    ]
    fewest = min(failing, key=len)
    if not fewest:
        return "relies on an estimate, and the pod was let down by one"
    return f"label does not match: {' and '.join(str(entry) for entry in fewest)}"


def _verdict_of_full_node(pod_class: PodClass) -> str:
    return "topology constraints keep the pod off" if pod_class.topological else "has room for one more such pod"


def _range(missing: Sequence[dict[str, int]]) -> str:
    """The least and the largest amount missing: ` (cpu by 100m to 3)`."""
    if not missing:
        return ""
    parts = []
    for resource in missing[0]:
        amounts = sorted(entry[resource] for entry in missing)
        least, most = amount(resource, amounts[0]), amount(resource, amounts[-1])
        parts.append(f"{resource} by {least}" if least == most else f"{resource} by {least} to {most}")
    return f" ({', '.join(parts)})"


def _why_excluded(node: Node) -> str:
    if node.metadata.deletion_timestamp:
        return "is being deleted"
    if node.spec.unschedulable:
        return "is cordoned"
    return "is not ready, or on its way out"
