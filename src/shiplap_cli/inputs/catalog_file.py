"""A catalogue file: instance types whose figures are taken as given."""

from __future__ import annotations

from math import isfinite
from pathlib import Path

import msgspec

from shiplap.errors import InvalidInput
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import PODS
from shiplap.kubernetes.requirements import Requirement, Requirements, requirement
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.manifests.files.documents import Document, read_documents
from shiplap_cli.inputs.object_validation import convert, invalid_field, parsed_quantities

_CAPACITY_TYPES = (labels.SPOT, labels.ON_DEMAND, labels.RESERVED)
DEFAULT_PODS = 110
"""Pods per node where a catalogue file says nothing, kubelet's own default."""


class _Fields(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _OfferingEntry(_Fields, frozen=True, forbid_unknown_fields=True):
    zone: str
    capacity_type: str
    price: float
    available: bool = True
    zone_id: str = ""
    reservation_id: str = ""
    reservation_capacity: int = 0
    reservation_type: str = ""
    reservation_interruptible: bool = False


class _TypeEntry(_Fields, frozen=True, forbid_unknown_fields=True):
    name: str
    capacity: dict[str, str | int | float]
    overhead: dict[str, str | int | float] = {}
    requirements: tuple[RequirementSpec, ...] = ()
    offerings: tuple[_OfferingEntry, ...] = ()


class _CatalogFile(_Fields, frozen=True, forbid_unknown_fields=True):
    instance_types: tuple[_TypeEntry, ...]


def read_catalog_file(path: Path) -> tuple[InstanceType, ...]:
    """The instance types of a catalogue file, JSON or YAML, its figures taken as given; sorted by name.

    Raises:
        InvalidInput: the file cannot be read, a field is unknown, missing or malformed, or a type is there twice.
    """
    documents = read_documents(path)
    if len(documents) != 1:
        raise InvalidInput(str(path), f"expected one document with instanceTypes, found {len(documents)}")
    document = documents[0]
    entries = convert(document, document.data, _CatalogFile).instance_types
    types: dict[str, InstanceType] = {}
    for place, entry in enumerate(entries):
        where = f"instanceTypes[{place}]"
        if not entry.name:
            raise invalid_field(document, f"{where}.name", "is empty")
        if entry.name in types:
            raise invalid_field(document, f"{where}.name", f"{entry.name} is there twice")
        types[entry.name] = _instance_type(document, where, entry)
    return tuple(types[name] for name in sorted(types))


def _instance_type(document: Document, where: str, entry: _TypeEntry) -> InstanceType:
    for place, offering in enumerate(entry.offerings):
        _check_offering(document, f"{where}.offerings[{place}]", offering)
    capacity = {PODS: DEFAULT_PODS} | parsed_quantities(document, f"{where}.capacity", entry.capacity)
    return InstanceType(
        name=entry.name,
        requirements=_requirements(document, where, entry),
        capacity=capacity,
        overhead=parsed_quantities(document, f"{where}.overhead", entry.overhead),
        offerings=tuple(
            Offering(
                offering.zone,
                offering.capacity_type,
                offering.price,
                offering.available,
                offering.zone_id,
                offering.reservation_id,
                offering.reservation_capacity,
                reservation_type=offering.reservation_type,
                reservation_interruptible=offering.reservation_interruptible,
            )
            for offering in entry.offerings
        ),
        sources=dict.fromkeys(capacity, "catalog"),
    )


def _check_offering(document: Document, where: str, offering: _OfferingEntry) -> None:
    """Raises InvalidInput for what no offering can be."""
    if not offering.zone:
        raise invalid_field(document, f"{where}.zone", "is empty")
    if offering.capacity_type not in _CAPACITY_TYPES:
        reason = f"{offering.capacity_type!r} is none of {', '.join(_CAPACITY_TYPES)}"
        raise invalid_field(document, f"{where}.capacityType", reason)
    if not (isfinite(offering.price) and offering.price >= 0):
        raise invalid_field(document, f"{where}.price", f"must be 0 or more, is {offering.price}")
    if offering.reservation_capacity < 0:
        reason = f"must be 0 or more, is {offering.reservation_capacity}"
        raise invalid_field(document, f"{where}.reservationCapacity", reason)


def _requirements(document: Document, where: str, entry: _TypeEntry) -> tuple[Requirement, ...]:
    parsed = []
    for place, rule in enumerate(entry.requirements):
        try:
            parsed.append(requirement(rule.key, rule.operator, rule.values, rule.min_values))
        except ValueError as error:
            raise invalid_field(document, f"{where}.requirements[{place}]", str(error)) from error
    return tuple(Requirements(parsed).values())
