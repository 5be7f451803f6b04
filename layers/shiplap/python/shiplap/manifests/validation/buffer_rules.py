"""Checks a CapacityBuffer beyond its fields, and the pod templates it may point at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from shiplap.kubernetes.objects import PodTemplateSpec
from shiplap.manifests import shiplap_annotations
from shiplap.manifests.custom_resources import CapacityBuffer, PodTemplate
from shiplap.manifests.decoding import Path, Problem
from shiplap.manifests.validation.common_rules import absent, metadata_problems, quantity_problems

SCALABLES = ("Deployment", "StatefulSet", "ReplicaSet")
STRATEGY = "buffer.x-k8s.io/active-capacity"

_SPEC: Path = ("spec",)


def admission_problems(buffer: CapacityBuffer, data: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems for which an API server refuses the buffer.

    `data` is the buffer as it was written, where absent and empty differ.
    """
    spec = buffer.spec
    yield from metadata_problems(buffer.metadata)
    if spec.pod_template_ref is not None and spec.scalable_ref is not None:
        yield _SPEC, "exactly one of podTemplateRef and scalableRef must be set"
    if spec.pod_template_ref is not None and spec.replicas is None and absent(data, (*_SPEC, "limits")):
        yield _SPEC, "podTemplateRef needs replicas or limits"


def problems_of(buffer: CapacityBuffer, _data: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems that make a buffer unusable although an API server accepts it."""
    spec = buffer.spec
    yield from shiplap_annotations.unsupported(buffer.metadata.annotations, ("metadata", "annotations"))
    if spec.provisioning_strategy != STRATEGY:
        yield (*_SPEC, "provisioningStrategy"), f"must be {STRATEGY}, is {spec.provisioning_strategy!r}"
    if spec.pod_template_ref is None and spec.scalable_ref is None:
        yield _SPEC, "exactly one of podTemplateRef and scalableRef must be set"
    if spec.pod_template_ref is not None:
        if spec.replicas is None and not spec.limits:
            yield _SPEC, "podTemplateRef needs replicas or limits"
        if spec.percentage is not None:
            yield (*_SPEC, "percentage"), "a pod template has no replicas to take a percentage of"
    scalable = spec.scalable_ref
    if scalable is not None and (scalable.api_group != "apps" or scalable.kind not in SCALABLES):
        known = ", ".join(SCALABLES)
        yield (*_SPEC, "scalableRef"), f"must be one of {known} of apps, is {scalable.kind} of {scalable.api_group!r}"
    yield from quantity_problems(spec.limits, (*_SPEC, "limits"))


def template_admission_problems(template: PodTemplate, _data: Mapping[str, Any]) -> Iterator[Problem]:
    """Of a pod template: its name, labels and annotations."""
    yield from metadata_problems(template.metadata)


def template_problems(template: PodTemplate, _data: Mapping[str, Any]) -> Iterator[Problem]:
    """Of a pod template: its shape, and the amounts that a buffer would ask for."""
    try:
        spec = msgspec.convert(template.template, PodTemplateSpec).spec
    except msgspec.ValidationError as error:
        yield ("template",), str(error)
        return
    for kind, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for place, container in enumerate(containers):
            where: Path = ("template", "spec", kind, place, "resources")
            yield from quantity_problems(container.resources.requests, (*where, "requests"))
            yield from quantity_problems(container.resources.limits, (*where, "limits"))
