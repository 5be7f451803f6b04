"""Edits of manifests, and what makes a NodePool allow less."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from shiplap.kubernetes.objects import Pod, ResourceRequirements, Toleration
from shiplap.kubernetes.quantity import format_amount, parse_amount
from shiplap.manifests.custom_resources import NodePool
from shiplap.scheduling.model.snapshot import Snapshot

MEBI, GIBI = 2**20, 2**30


RAISE = re.compile(r"raise the (\S+) limit of pool (\S+) from (\S+) to ([^\s,]+)")


REQUEST = re.compile(r"request (\S+) (\S+) instead of ([^\s,]+)")


NOTHING = re.compile(r"request no ([^\s,]+)")


TOLERATE = re.compile(r"tolerate (\w+)=(\w+):(\w+)")


FREE = re.compile(r"do not ask for (\S+) In ")


ALLOW = re.compile(r"allow (\S+) in requirement (\S+) of pool (\S+)")


def edits(text: str) -> list[tuple[str, ...]]:
    """The single edits that the words of a change ask for."""
    found: list[tuple[str, ...]] = [("limit", *match) for match in RAISE.findall(text)]
    found += [("request", resource, value, before) for value, resource, before in REQUEST.findall(text)]
    found += [("request", resource, "0", "") for resource in NOTHING.findall(text)]
    found += [("tolerate", *match) for match in TOLERATE.findall(text)]
    found += [("free", label) for label in FREE.findall(text)]
    found += [("allow", *match) for match in ALLOW.findall(text)]
    return found


def edited(snapshot: Snapshot, wanted: list[tuple[str, ...]]) -> Snapshot:
    pools = {pool.metadata.name: pool for pool in snapshot.manifests.node_pools}
    asker: Any = snapshot.view.pods[0]
    spec = asker.spec
    requests: dict[str, Any] = {}
    for kind, *rest in wanted:
        if kind == "limit":
            known = pools[rest[1]]
            limits = {**known.spec.limits, rest[0]: rest[3]}
            pools[rest[1]] = msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, limits=limits))
        elif kind == "allow":
            pools[rest[2]] = _allowing(pools[rest[2]], rest[1], rest[0])
        elif kind == "request":
            requests[rest[0]] = rest[1]
        elif kind == "tolerate":
            spec = msgspec.structs.replace(spec, tolerations=(Toleration(rest[0], "Equal", rest[1], rest[2]),))
        else:
            spec = msgspec.structs.replace(spec, node_selector={})
    if requests:
        spec = msgspec.structs.replace(spec, resources=ResourceRequirements(requests=requests))
    pods: tuple[Pod, ...] = (msgspec.structs.replace(asker, spec=spec), *snapshot.view.pods[1:])
    return msgspec.structs.replace(
        snapshot,
        view=msgspec.structs.replace(snapshot.view, pods=pods),
        manifests=msgspec.structs.replace(snapshot.manifests, node_pools=tuple(pools.values())),
    )


def _allowing(pool: NodePool, key: str, value: str) -> NodePool:
    """A NodePool with a value more in a requirement."""
    template = pool.spec.template
    lines = [
        msgspec.structs.replace(line, values=(*line.values, value))
        if (line.key, line.operator) == (key, "In")
        else line
        for line in template.spec.requirements
    ]
    spec = msgspec.structs.replace(template.spec, requirements=tuple(lines))
    made = msgspec.structs.replace(template, spec=spec)
    return msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, template=made))


def weaker(edit: tuple[str, ...]) -> tuple[str, ...] | None:
    """The same edit, one unit less of it, in the unit it is written in; None if that is no edit any more."""
    if edit[0] not in ("limit", "request"):
        return None
    limit = edit[0] == "limit"
    resource, to, now = (edit[1], edit[4], edit[3]) if limit else (edit[1], edit[2], edit[3])
    if not now:
        return None
    value = parse_amount(resource, to)
    unit = 1
    if resource == "memory":
        unit = GIBI if limit and to.endswith("Gi") and value > 4 * GIBI else MEBI
    elif resource == "cpu" and limit and not to.endswith("m"):
        unit = 1000
    less = value - unit if limit else value + unit
    if (less <= parse_amount(resource, now)) == limit:
        return None
    text = format_amount(resource, less)
    return (*edit[:4], text) if limit else (edit[0], resource, text, now)
