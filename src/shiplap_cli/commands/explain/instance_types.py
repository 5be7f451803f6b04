"""`shiplap explain instance-types`: what a node of each type yields under an EC2NodeClass, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import RenderableType
from rich.table import Column

from shiplap.errors import InvalidInput
from shiplap.instances.capacity.capacity_setting import CapacitySetting, VpcCni
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.instances.catalog.type_labels import single_valued_labels
from shiplap.instances.resolve import instance_types as resolve
from shiplap.kubernetes.labels import ARCH, ON_DEMAND
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.kubernetes.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, format_resources
from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec
from shiplap.manifests.files.loading import load_manifests
from shiplap_cli.inputs.learned import learned_file
from shiplap_cli.output import Format, Output, emit, titled_table
from shiplap_lab.catalogue import embedded

_COMMON = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)


class _NodeYield(msgspec.Struct, frozen=True):
    """One entry of the fixed format; resources as Kubernetes quantities, none of them zero."""

    labels: dict[str, str]
    capacity: dict[str, str]
    overhead: dict[str, str]
    allocatable: dict[str, str]
    sources: dict[str, str]


YieldsByType = dict[str, _NodeYield]
"""The answer of the command."""


def instance_types(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names or globs such as m5.large or 'c7i*'; all types without any.")
    ] = None,
    *,
    nodeclass: Annotated[
        Path | None, typer.Option(help="Manifest with the EC2NodeClass; without one, AL2023 with its defaults.")
    ] = None,
    vm_memory_overhead_percent: Annotated[
        float, typer.Option(min=0, max=1, help="Share of memory the hypervisor keeps, as a fraction.")
    ] = 0.075,
    prefix_delegation: Annotated[bool, typer.Option(help="The VPC CNI delegates prefixes.")] = False,
    custom_networking: Annotated[bool, typer.Option(help="Pods have subnets of their own.")] = False,
    cni_max_eni: Annotated[int | None, typer.Option(min=1, help="The VPC CNI's MAX_ENI.")] = None,
    cni_version: Annotated[str, typer.Option(help="The VPC CNI's version; prefixes need 1.9 or newer.")] = "",
    reserved_enis: Annotated[int, typer.Option(min=0, help="Network interfaces that pods cannot use.")] = 0,
    capacity: Annotated[
        Path | None, typer.Option(help="Learned capacity, as `shiplap capacity export` prints it.")
    ] = None,
    region: Annotated[str, typer.Option(help="Region whose zones are meant.")] = embedded.DEFAULT_REGION,
    output: Output = Format.TABLE,
) -> None:
    """What each instance type yields: labels, capacity, overhead, allocatable and the source of each number.

    Example: shiplap explain instance-types 'c7i-flex.*' --nodeclass nodes.yaml --region eu-west-1
    """
    departs = prefix_delegation or custom_networking or cni_max_eni is not None or bool(cni_version)
    setting = CapacitySetting(
        region=region,
        vm_memory_overhead_percent=vm_memory_overhead_percent,
        reserved_enis=reserved_enis,
        cni=VpcCni(prefix_delegation, custom_networking, cni_max_eni, _version(cni_version)) if departs else None,
    )
    types = resolve(
        embedded.load(region),
        _node_class(nodeclass),
        setting,
        resolved=None,
        learned=() if capacity is None else learned_file.read_learned(capacity),
        unavailable=(),
    )
    chosen = _matching(types, names or [])
    emit({kind.name: _yield(kind) for kind in chosen}, output, lambda: _table(chosen))


def _node_class(path: Path | None) -> EC2NodeClass:
    if path is None:
        return EC2NodeClass(ObjectMeta(name="default"), EC2NodeClassSpec(ami_family="AL2023"))
    node_classes = load_manifests([path]).node_classes
    if len(node_classes) != 1:
        names = ", ".join(node_class.metadata.name for node_class in node_classes) or "none"
        raise InvalidInput(str(path), f"expected exactly one EC2NodeClass, found {len(node_classes)} ({names})")
    return node_classes[0]


def _version(text: str) -> str:
    if text and not re.fullmatch(r"v?\d+\.\d+(\.\d+)?.*", text):
        raise InvalidInput("--cni-version", f"{text!r} is not a version such as 1.19.2")
    return text


def _matching(types: Sequence[InstanceType], patterns: Iterable[str]) -> list[InstanceType]:
    """The types that match any pattern, in the order of their names; all without patterns."""
    patterns = list(patterns)
    for pattern in patterns:
        if not any(fnmatchcase(kind.name, pattern) for kind in types):
            near = get_close_matches(pattern, [kind.name for kind in types], n=3)
            hint = f"did you mean {', '.join(near)}?" if near else "patterns such as 'c7i.*' match by name"
            reason = f"{pattern!r} matches none of the {len(types)} that can be launched; {hint}"
            raise InvalidInput("instance type", reason)
    return [kind for kind in types if not patterns or any(fnmatchcase(kind.name, each) for each in patterns)]


def _yield(kind: InstanceType) -> _NodeYield:
    amounts = {name: amount for name, amount in kind.capacity.items() if amount}
    allocatable = kind.allocatable
    return _NodeYield(
        labels=single_valued_labels(kind),
        capacity=format_resources(amounts),
        overhead=format_resources({name: amount for name, amount in kind.overhead.items() if amount}),
        allocatable=format_resources({name: allocatable[name] for name in amounts}),
        sources={name: kind.sources[name] for name in sorted(amounts)},
    )


def _table(kinds: Sequence[InstanceType]) -> RenderableType:
    table = titled_table(
        "Allocatable per node",
        "instance type",
        "arch",
        *(_right(name) for name in ("cpu", "memory", "of capacity", "ephemeral", "pods")),
        "devices",
        _right("USD/h"),
        "memory from",
    )
    for kind in sorted(kinds, key=lambda kind: (kind.name.partition(".")[0], kind.capacity[CPU], kind.name)):
        allocatable = format_resources(kind.allocatable)
        table.add_row(
            kind.name,
            single_valued_labels(kind)[ARCH],
            allocatable[CPU],
            allocatable[MEMORY],
            format_resources(kind.capacity)[MEMORY],
            allocatable[EPHEMERAL_STORAGE],
            allocatable[PODS],
            ", ".join(f"{amount} {name}" for name, amount in allocatable.items() if name not in _COMMON),
            _price(kind),
            kind.sources[MEMORY],
        )
    return table


def _price(kind: InstanceType) -> str:
    """The on-demand price; `~` marks an estimate."""
    offered = [offering for offering in kind.offerings if offering.capacity_type == ON_DEMAND]
    if not offered:
        return "-"
    return f"{'~' if offered[0].price_estimated else ''}{offered[0].price:.4f}"


def _right(header: str) -> Column:
    return Column(header, justify="right")
