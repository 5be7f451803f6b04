"""The judge's own reading of raw JSON: quantities, durations, requests of pods, Nodes, and items of table `state`."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from math import ceil
from typing import Any

import msgspec

Json = Mapping[str, Any]

_DECIMAL = {letter: Decimal(10) ** (3 * place) for place, letter in enumerate(("n", "u", "m", "", *"kMGTPE"), -3)}
_SCALES = _DECIMAL | {f"{letter}i": Decimal(2) ** (10 * place) for place, letter in enumerate("KMGTPE", 1)}
_UNITS_S = {"h": Decimal(3600), "m": Decimal(60), "s": Decimal(1), "ms": Decimal("1e-3")}
_PART = r"(\d+\.?\d*|\.\d+)(ms|[hms])"
_DISRUPTED, _PROTECTED = "karpenter.sh/disrupted", "karpenter.sh/do-not-disrupt"
_DEFAULT_GRACE_S = 30.0
_PAID = re.compile(r"commitments pay \$([0-9.]+) of")
_ROUNDED_USD = 0.00005


class ClaimItem(msgspec.Struct, frozen=True):
    """The fields of a claim's item that the judge looks at. Times are epoch seconds; CPU is in thousandths."""

    cluster: str
    name: str
    node_pool: str = ""
    state: str = "Planned"
    token: str = ""
    instance_id: str = ""
    instance_type: str = ""
    instance_types: tuple[str, ...] = ()
    relies_on_estimate: tuple[str, ...] = ()
    ami: str = ""
    kubelet_hash: str = ""
    node_name: str = ""
    owner: str = ""
    pods: tuple[dict[str, Any], ...] = ()
    requests: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    missed: bool = False
    failure: str = ""
    hourly: float = 0.0
    created_at: float = 0.0
    deadline_at: float = 0.0
    requirements: tuple[dict[str, Any], ...] = ()
    preferred_spot: dict[str, Any] | None = None
    reasons: tuple[str, ...] = ()
    version: int = 0

    @property
    def counted_on(self) -> float:
        """USD per hour that commitments pay for it at least, as it says; 0 if it was launched as another type."""
        found = next(filter(None, map(_PAID.match, self.reasons)), None)
        is_as_planned = self.instance_type in ("", *self.instance_types[:1])
        return max(float(found[1]) - _ROUNDED_USD, 0.0) if found is not None and is_as_planned else 0.0


class CommandItem(msgspec.Struct, frozen=True):
    """The fields of a disruption command's item that the judge looks at."""

    cluster: str
    name: str
    targets: tuple[str, ...] = ()
    replacements: tuple[str, ...] = ()
    reason: str = ""
    state: str = "Waiting"
    created_at: float = 0.0


class LaunchedMachine(msgspec.Struct, frozen=True):
    """An instance as EC2 describes it, with the tags of its launch; `launch` is the client token."""

    id: str
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    cluster: str = ""
    node_pool: str = ""
    launch: str = ""
    install: str = ""
    launched_at: float = 0.0


class FleetCall(msgspec.Struct, frozen=True):
    """A CreateFleet request: the claims it is for, and what must be equal whenever its token is sent again."""

    token: str
    cluster: str
    claims: tuple[str, ...]
    wanted: int
    capacity_type: str
    node_class: str = ""


CLAIMS = msgspec.json.Decoder(ClaimItem)
COMMANDS = msgspec.json.Decoder(CommandItem)


def plain(stored: str | bytes) -> str | bytes:
    """The JSON of an item, which is compressed if it is long."""
    return stored if isinstance(stored, str) else zlib.decompress(stored)


def amount(quantity: str | float) -> Decimal:
    """A Kubernetes quantity in units: cores, bytes, pieces. Raises ValueError."""
    text = str(quantity).strip()
    digits = text.rstrip("KMGTPEkimnu")
    try:
        return Decimal(digits) * _SCALES[text[len(digits) :]]
    except (InvalidOperation, KeyError):
        raise ValueError(text) from None


def amounts(quantities: Json | None) -> dict[str, Decimal]:
    """Several quantities by name."""
    return {name: amount(quantity) for name, quantity in (quantities or {}).items()}


def total(parts: Iterable[Mapping[str, Decimal]], both: Callable[..., Decimal] = Decimal.__add__) -> dict[str, Decimal]:
    """The sum of several amounts, by resource; with max the largest of them."""
    merged: dict[str, Decimal] = {}
    for part in parts:
        for name, more in part.items():
            merged[name] = both(merged.get(name, Decimal(0)), more)
    return merged


def requests_of(pod: Json) -> dict[str, Decimal]:
    """Return kube-scheduler's reservation for a pod: for containers and sidecars, or an init container that needs more.

    A sidecar is an init container that is always restarted. It runs beside the init containers that follow it. Requests
    of the pod as a whole replace those of its containers. One pod is reserved beside.
    """
    spec = pod["spec"]
    beside: list[dict[str, Decimal]] = []
    peaks: list[dict[str, Decimal]] = []
    for container in spec.get("initContainers") or ():
        peaks.append(total([*beside, _wanted(container)]))
        beside += [_wanted(container)] if container.get("restartPolicy") == "Always" else []
    running = total([*beside, *(_wanted(container) for container in spec.get("containers") or ())])
    needed = {**total([running, *peaks], max), **_wanted(spec)}
    return total([needed, amounts(spec.get("overhead")), {"pods": Decimal(1)}])


def _wanted(holder: Json) -> dict[str, Decimal]:
    """Requests; a limit without a request stands for it."""
    resources = holder.get("resources") or {}
    return {**amounts(resources.get("limits")), **amounts(resources.get("requests"))}


def moment(timestamp: str | None) -> float:
    """Epoch seconds of an RFC 3339 timestamp, 0 without one."""
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def seconds(duration: str) -> float:
    """A Go duration such as `1h30m`. Raises ValueError."""
    if not re.fullmatch(rf"({_PART})+", duration):
        raise ValueError(duration)
    return float(sum(Decimal(number) * _UNITS_S[unit] for number, unit in re.findall(_PART, duration)))


def grace_s(pod: Json) -> float:
    """Return how long a pod may take to end, in seconds."""
    given = pod["spec"].get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE_S if given is None else float(given)


def is_finished(pod: Json) -> bool:
    """True if a pod has ended and will not run again."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_protected(pod: Json, now: float) -> bool:
    """True if `karpenter.sh/do-not-disrupt` protects a pod now: always, or for a duration since its start."""
    value = (pod["metadata"].get("annotations") or {}).get(_PROTECTED)
    if value is None or value == "true":
        return value is not None
    try:
        lasts_s = seconds(value)
    except ValueError:
        return False
    started = moment((pod.get("status") or {}).get("startTime"))
    return lasts_s > 0 and (not started or now < started + lasts_s)


def stays_to_the_end(pod: Json) -> bool:
    """True if a pod ends with its node: a static pod, or one that tolerates the taint of nodes that leave."""
    for item in pod["spec"].get("tolerations") or ():
        key, exists = item.get("key"), item.get("operator") == "Exists"
        fits = (exists and key in (None, "", _DISRUPTED)) or (key == _DISRUPTED and not item.get("value"))
        if fits and item.get("effect") in (None, "", "NoSchedule"):
            return True
    return owner_kind(pod) == "Node"


def owner_kind(pod: Json) -> str:
    """The kind of a pod's controller, empty without one."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner["kind"] for owner in owners if owner.get("controller")), "")


def priority(pod: Json) -> int:
    """A pod's priority."""
    return int(pod["spec"].get("priority") or 0)


def turn(pod: Json) -> int:
    """Return a pod's turn to leave a node: ordinary pods, DaemonSet pods, critical pods, critical DaemonSet pods."""
    critical = str(pod["spec"].get("priorityClassName", "")) in ("system-cluster-critical", "system-node-critical")
    return 2 * critical + (owner_kind(pod) == "DaemonSet")


def is_ready(item: Json) -> bool:
    """True if the conditions of a Node or a pod show that it is ready."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return any(known.get("type") == "Ready" and known.get("status") == "True" for known in conditions)


def machine_of(node: Json) -> str:
    """The id of a Node's instance, the last part of its provider id."""
    return str((node.get("spec") or {}).get("providerID", "")).rpartition("/")[2]


def may_be_unavailable(budget: Json, pods: int) -> int:
    """Return how many of these pods a PodDisruptionBudget allows to be missing."""
    spec = budget["spec"]
    most, least = spec.get("maxUnavailable"), spec.get("minAvailable", "100%")
    return share(most, pods) if most is not None else max(0, pods - share(least, pods))


def share(value: str | int, whole: int) -> int:
    """A number, or a percentage of a whole, rounded up."""
    text = str(value)
    return ceil(whole * int(text[:-1]) / 100) if text.endswith("%") else int(text)


def selects(budget: Json, pod: Json) -> bool:
    """True if a PodDisruptionBudget covers a pod."""
    selector = budget["spec"].get("selector")
    if selector is None or budget["metadata"].get("namespace") != pod["metadata"].get("namespace"):
        return False
    labels = pod["metadata"].get("labels") or {}
    equal = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return equal and all(_holds(rule, labels) for rule in selector.get("matchExpressions") or ())


def _holds(rule: Json, labels: Mapping[str, str]) -> bool:
    key, listed = rule["key"], labels.get(rule["key"]) in (rule.get("values") or ())
    holds = {"In": listed, "NotIn": not listed, "Exists": key in labels, "DoesNotExist": key not in labels}
    return holds[rule["operator"]]
