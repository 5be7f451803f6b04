"""Does to workloads and Secrets what an API server does beyond storing them: defaults, refusals, encoded texts."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import msgspec

from shiplap.errors import ClusterError
from shiplap.kubernetes.objects import DaemonSet, LabelSelector, Node, Pod
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.selectors import matches
from shiplap.manifests.shiplap_annotations import zone_named
from shiplap.manifests.times import parse_cron
from shiplap_lab.api_server.api_resources import RESOURCES
from shiplap_lab.api_server.changelog import Object

_JOBS, _CRON_JOBS, _CONTROLLERS = "jobs", "cronjobs", "replicationcontrollers"
WORKLOADS = frozenset({"deployments", "replicasets", _CONTROLLERS, "statefulsets", "daemonsets", _JOBS, _CRON_JOBS})
_READ: dict[str, type[Pod | Node | DaemonSet]] = {"pods": Pod, "nodes": Node, "daemonsets": DaemonSet}
"""What schedulers and kubelets read of every object."""

_MOST = 2**31 - 1
_ROLLING = {"type": "RollingUpdate"}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "deployments": {
        "replicas": 1,
        "strategy": {**_ROLLING, "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
    "replicasets": {"replicas": 1},
    _CONTROLLERS: {"replicas": 1},
    "statefulsets": {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {**_ROLLING, "rollingUpdate": {"partition": 0}},
        "revisionHistoryLimit": 10,
    },
    "daemonsets": {
        "updateStrategy": {**_ROLLING, "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "revisionHistoryLimit": 10,
    },
    _JOBS: {"parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False},
    _CRON_JOBS: {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    },
}
_COUNTS = (
    "replicas",
    "minReadySeconds",
    "revisionHistoryLimit",
    "progressDeadlineSeconds",
    "parallelism",
    "completions",
    "backoffLimit",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "startingDeadlineSeconds",
    "successfulJobsHistoryLimit",
    "failedJobsHistoryLimit",
)
_ENDING = ("Never", "OnFailure")
"""The restart policies of pods that end."""
_FIXED_OF_JOBS = ("completions", "completionMode", "selector", "template")


def admitted(plural: str, item: Object, before: Object | None) -> Object:
    """A workload with its defaults, a Secret with its texts encoded; any other object as it is.

    `before` is what it replaces.

    Raises:
        ClusterError: status 422, with every problem that Kubernetes would name, and for what no controller could read.
    """
    item = readable(plural, item, before)
    if plural == "secrets":
        return _encoded(item)
    if plural not in WORKLOADS:
        return item
    given = item.get("spec") or {}
    if plural == _JOBS and given.get("completions") is None and given.get("parallelism") is None and before is None:
        given = {**given, "completions": 1}
    item = {**item, "spec": _defaulted(given, _DEFAULTS[plural])}
    if plural == _CONTROLLERS:
        item = _with_labels_of_pods(item)
    if plural == _JOBS and before is None:
        item = _selected_by_itself(item)
    problems = [*_problems(plural, item, before)]
    if problems:
        resource, name = RESOURCES[plural], item["metadata"].get("name", "")
        kind = f"{resource.kind}.{resource.group}".rstrip(".")
        text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise ClusterError(f'{kind} "{name}" is invalid: {text}', status=422)
    return item


def readable(plural: str, item: Object, _before: Object | None) -> Object:
    """The object, if schedulers and kubelets can read it: one that they cannot would end them, not its own request.

    Raises:
        ClusterError: status 422.
    """
    if plural not in _READ:
        return item
    try:
        typed = msgspec.convert(item, _READ[plural])
        if isinstance(typed, Pod):
            pod_requests(typed)
    except (msgspec.ValidationError, ValueError) as error:
        name = item["metadata"].get("name", "")
        raise ClusterError(f'{RESOURCES[plural].kind} "{name}" is invalid: {error}', status=422) from error
    return item


def _defaulted(given: Object, defaults: dict[str, Any]) -> Object:
    """The fields that are given, and the defaults of those that are not; a strategy's parameters go with its type."""
    result = {name: value for name, value in given.items() if value is not None}
    for name, default in defaults.items():
        if not isinstance(default, dict):
            result.setdefault(name, default)
        elif not isinstance(result.get(name), dict) or not result[name]:
            result[name] = default
        elif result[name].get("type", default.get("type")) == default.get("type"):
            result[name] = _defaulted(result[name], default)
    return result


def _encoded(item: Object) -> Object:
    """The Secret with the texts of `stringData` in `data`; only requests have that field.

    Raises:
        ClusterError: status 422, a text is none.
    """
    texts = item.get("stringData") or {}
    kept = {name: value for name, value in item.items() if name != "stringData"}
    if wrong := [key for key, text in texts.items() if not isinstance(text, str)]:
        name = item["metadata"].get("name", "")
        raise ClusterError(f'Secret "{name}" is invalid: stringData[{wrong[0]}]: must be text', status=422)
    encoded = {key: b64encode(text.encode()).decode() for key, text in texts.items()}
    return {**kept, "data": {**(item.get("data") or {}), **encoded}} if encoded else kept


def _with_labels_of_pods(item: Object) -> Object:
    """A ReplicationController without a selector, or without labels, has those of its pods."""
    spec = item["spec"]
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    metadata = item["metadata"] if item["metadata"].get("labels") else {**item["metadata"], "labels": labels}
    return {**item, "metadata": metadata, "spec": {**spec, "selector": spec.get("selector") or labels}}


def _problems(plural: str, item: Object, before: Object | None) -> Iterator[str]:
    spec = item["spec"]
    for name in _COUNTS:
        if not _is_count(spec.get(name, 0)):
            yield f"spec.{name}: Invalid value: {spec[name]!r}: must be a whole number from 0 to {_MOST}"
    if plural == _CRON_JOBS:
        yield from _cron_job_problems(spec)
        return
    if plural == _CONTROLLERS:
        yield from _template_problems({**spec, "selector": {"matchLabels": spec["selector"]}}, ("Always",))
        return
    yield from _template_problems(spec, _ENDING if plural == _JOBS else ("Always",))
    if plural == _JOBS:
        yield from _job_problems(spec, before)
        return
    strategy = "strategy" if plural == "deployments" else "updateStrategy"
    yield from _strategy_problems(f"spec.{strategy}", spec.get(strategy), plural)
    if before is not None and plural != "statefulsets" and before["spec"].get("selector") != spec.get("selector"):
        yield "spec.selector: Invalid value: field is immutable"
    if before is not None and plural == "statefulsets":
        changed = {name for name in {*spec, *before["spec"]} if spec.get(name) != before["spec"].get(name)}
        if changed - _MUTABLE:
            yield (
                f"spec: Forbidden: updates to statefulset spec for fields other than {', '.join(sorted(_MUTABLE))} "
                "are forbidden"
            )


_MUTABLE = frozenset(
    {
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    }
)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST


def _selected_by_itself(item: Object) -> Object:
    """A Job whose pods carry its uid, by which it selects them; only `manualSelector` leaves that to its author."""
    spec = item["spec"]
    template = spec.get("template")
    if spec.get("manualSelector") or not isinstance(template, dict):
        return item
    metadata, uid, name = template.get("metadata") or {}, item["metadata"]["uid"], item["metadata"]["name"]
    own = {"controller-uid": uid, "job-name": name}
    added = {**own, **{f"batch.kubernetes.io/{key}": value for key, value in own.items()}}
    labelled = {**template, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **added}}}
    selector = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    return {**item, "spec": {**spec, "selector": selector, "template": labelled}}


def _job_problems(spec: Object, before: Object | None) -> Iterator[str]:
    if spec.get("completionMode") not in ("NonIndexed", "Indexed"):
        yield f'spec.completionMode: Unsupported value: "{spec.get("completionMode")}"'
    if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
        yield "spec.completions: Required value: when completion mode is Indexed"
    for name in _FIXED_OF_JOBS if before is not None else ():
        if before is not None and before["spec"].get(name) != spec.get(name):
            yield f"spec.{name}: Invalid value: field is immutable"


def _cron_job_problems(spec: Object) -> Iterator[str]:
    try:
        parse_cron(str(spec.get("schedule", "")))
        zone_named(spec.get("timeZone") or "UTC")
    except ValueError as error:
        yield f"spec: Invalid value: {error}"
    if spec.get("concurrencyPolicy") not in ("Allow", "Forbid", "Replace"):
        yield f'spec.concurrencyPolicy: Unsupported value: "{spec.get("concurrencyPolicy")}"'
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    yield from (f"spec.jobTemplate.{problem}" for problem in _pod_problems(job.get("template") or {}, _ENDING))


def _template_problems(spec: Object, policies: tuple[str, ...]) -> Iterator[str]:
    template, selector = spec.get("template"), spec.get("selector")
    if not isinstance(template, dict):
        yield "spec.template: Required value"
        return
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not selector:
        yield "spec.selector: Required value"
    else:
        try:
            typed = msgspec.convert(selector, LabelSelector)
            if not (typed.match_labels or typed.match_expressions):
                yield "spec.selector: Invalid value: empty selector is invalid for a workload"
            elif not matches(typed, labels):
                yield (
                    f"spec.template.metadata.labels: Invalid value: {labels}: "
                    "`selector` does not match template `labels`"
                )
        except (msgspec.ValidationError, ValueError) as error:
            yield f"spec.selector: Invalid value: {error}"
    yield from _pod_problems(template, policies)


def _pod_problems(template: Object, policies: tuple[str, ...]) -> Iterator[str]:
    """Yield why no pod can be made of a template: containers, restart policy, quantities."""
    pod = template.get("spec") or {}
    if not pod.get("containers"):
        yield "spec.template.spec.containers: Required value"
    policy = pod.get("restartPolicy", "Always")
    if policy not in policies:
        supported = ", ".join(f'"{name}"' for name in policies)
        yield f'spec.template.spec.restartPolicy: Unsupported value: "{policy}": supported values: {supported}'
    try:
        pod_requests(msgspec.convert({"spec": pod, "metadata": template.get("metadata") or {}}, Pod))
    except (msgspec.ValidationError, ValueError) as error:
        yield f"spec.template.spec: Invalid value: {error}"


def _strategy_problems(where: str, strategy: Any, plural: str) -> Iterator[str]:
    if not isinstance(strategy, dict):
        return
    kinds = {"deployments": ("Recreate", "RollingUpdate")}.get(plural, ("OnDelete", "RollingUpdate"))
    if strategy.get("type", "RollingUpdate") not in kinds:
        supported = ", ".join(f'"{name}"' for name in kinds)
        yield f'{where}.type: Unsupported value: "{strategy["type"]}": supported values: {supported}'
    rolling = strategy.get("rollingUpdate") or {}
    if strategy.get("type") == "Recreate" and rolling:
        yield f"{where}.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"
    amounts = {name: rolling[name] for name in ("maxSurge", "maxUnavailable") if name in rolling}
    for name, value in amounts.items():
        digits = value.removesuffix("%") if isinstance(value, str) and value.endswith("%") else ""
        if not _is_count(value) and not (digits.isdecimal() and len(digits) < 10):
            yield f"{where}.rollingUpdate.{name}: Invalid value: {value!r}: must be a whole number or a percentage"
    if len(amounts) == 2 and all(value in (0, "0%") for value in amounts.values()):
        yield f"{where}.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"
    if not _is_count(rolling.get("partition", 0)):
        yield f"{where}.rollingUpdate.partition: Invalid value: must be a whole number"
