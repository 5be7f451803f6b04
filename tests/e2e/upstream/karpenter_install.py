"""The settings that Karpenter's tests count on: those of Shiplap, and an inert Deployment that states Karpenter's.

Tests read the environment of Deployment `kube-system/karpenter`, write theirs into it and wait for its pods if it
changes. It has no replicas, and what a test would write is there before: the test finds nothing to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shiplap.errors import ObjectNotFound
from tests.e2e.api import RealApi
from tests.e2e.upstream.binaries import AWS, module_of
from tests.e2e.upstream.outcomes import UpstreamTest

NODE_ROLE = "KarpenterNodeRole-real"
_NAMESPACE, _NAME = "kube-system", "karpenter"
REBOOTED = "AcceleratedHardwareReady"
"""The condition of nodes that are rebooted, for one of the reasons for which Karpenter's AWS provider does so."""

_REBOOT_POLICY = {"condition": REBOOTED, "reason": ".*XID46.*", "tolerated": "10m", "action": "Reboot"}
_TERMINATE_FIRST_S = 600
_GIVEN_UP_S = 540
"""Karpenter gives a replacement up after ten minutes, and the test waits for eleven."""
_RESERVED_ENIS = "CNITests should set maxPods when reservedENIs is set"


def settings_of(test: UpstreamTest) -> dict[str, Any]:
    """The cluster's settings in shiplap.yaml for a test."""
    roles = ["shiplap-node-real"]
    settings: dict[str, Any] = {"manifests": "cluster"}
    if module_of(test.suite) is AWS:
        roles = [NODE_ROLE]
        settings["instanceProfiles"] = ["KarpenterNodeInstanceProfile-real", "KarpenterNodeInstanceProfile-Drift-real"]
        settings["minValuesPolicy"] = _min_values_policy(test)
        if test.name == _RESERVED_ENIS:
            settings["reservedENIs"] = 1
    if test.name.endswith(" never registers"):
        settings["joinTimeoutSeconds"] = _GIVEN_UP_S
    if test.name.startswith("Reboot "):
        settings["repairPolicies"] = [_REBOOT_POLICY]
    if _terminates_first(test):
        settings["disruption"] = {"terminateFirstSeconds": _TERMINATE_FIRST_S}
    return settings | {"nodeRoles": roles}


def install(api: RealApi, test: UpstreamTest) -> None:
    """Make the Deployment anew, with what a test would write."""
    try:
        api.delete("deployments", _NAME, _NAMESPACE)
    except ObjectNotFound:
        pass  # the first test of a cluster
    labels = {"app.kubernetes.io/instance": _NAME}
    environment = [{"name": name, "value": value} for name, value in _environment(test).items()]
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "controller", "image": "none", "env": environment}]},
    }
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    api.create("deployments", {"metadata": {"name": _NAME, "labels": labels}, "spec": spec}, _NAMESPACE)


def _environment(test: UpstreamTest) -> Mapping[str, str]:
    """As the test leaves it: an update in place, so that the order does not matter to it."""
    gates = ("NodeRepair", "TerminateFirstRepair", "TerminateFirstDrift")
    environment = {"FEATURE_GATES": ",".join(f"{gate}=true" for gate in gates)}
    if module_of(test.suite) is AWS:
        environment |= {
            "MIN_VALUES_POLICY": _min_values_policy(test),
            "INTERRUPTION_QUEUE": "",
            "DISABLE_DRY_RUN": "false",
        }
        if test.suite == "legacyrepair":
            environment["LEGACY_NODE_REPAIR"] = "true"
        if test.name == _RESERVED_ENIS:
            environment["RESERVED_ENIS"] = "1"
    return environment


def _min_values_policy(test: UpstreamTest) -> str:
    best_effort = test.suite == "scheduling-besteffort" or "MinValuesPolicyBestEffort" in test.name
    return "BestEffort" if best_effort else "Strict"


def _terminates_first(test: UpstreamTest) -> bool:
    return test.name.startswith("TerminateFirst ") or "before launching its replacement" in test.name
