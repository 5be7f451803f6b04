"""Checks the open `kubelet` map of an EC2NodeClass.

Its fields are those of the kubelet's configuration file (kubelet.config.k8s.io/v1beta1), checked for spelling and type
at every depth. Expressions in place of quantities are checked as far as that is possible without an instance type.
Fields that the bootstrap of an AMI family cannot pass on are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from shiplap.kubernetes.quantity import CPU, EPHEMERAL_STORAGE, MEMORY
from shiplap.manifests import expressions, times
from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap.manifests.decoding import Path, Problem, decode
from shiplap.manifests.validation.ami_rules import CUSTOM, ami_family
from shiplap.manifests.validation.common_rules import absent, attempt, within


def _fields(names: str, kind: Any) -> list[tuple[str, Any, Any]]:
    return [(name, kind | None, None) for name in names.split()]


def _list_of(kind: Any) -> Any:
    return tuple[kind, ...]


def _struct(name: str, *groups: list[tuple[str, Any, Any]]) -> type[msgspec.Struct]:
    fields = [field for group in groups for field in group]
    return msgspec.defstruct(name, fields, frozen=True, forbid_unknown_fields=True)


DURATIONS = """
    syncFrequency fileCheckFrequency httpCheckFrequency streamingConnectionIdleTimeout nodeStatusUpdateFrequency
    nodeStatusReportFrequency imageMinimumGCAge imageMaximumGCAge volumeStatsAggPeriod cpuManagerReconcilePeriod
    runtimeRequestTimeout cpuCFSQuotaPeriod evictionPressureTransitionPeriod containerLogMonitorInterval
    shutdownGracePeriod shutdownGracePeriodCriticalPods
"""
_TEXTS = """
    apiVersion kind staticPodPath podLogsDir staticPodURL address tlsCertFile tlsPrivateKeyFile tlsMinVersion
    imagePullCredentialsVerificationPolicy healthzBindAddress clusterDomain kubeletCgroups systemCgroups cgroupRoot
    cgroupDriver cpuManagerPolicy memoryManagerPolicy topologyManagerPolicy topologyManagerScope hairpinMode podCIDR
    resolvConf contentType containerLogMaxSize configMapAndSecretChangeDetectionStrategy reservedSystemCPUs
    showHiddenMetricsForVersion systemReservedCgroup kubeReservedCgroup volumePluginDir providerID
    containerRuntimeEndpoint imageServiceEndpoint memoryReservationPolicy
"""
_NUMBERS = """
    port readOnlyPort registryPullQPS registryBurst eventRecordQPS eventBurst healthzPort oomScoreAdj
    nodeLeaseDurationSeconds imageGCHighThresholdPercent imageGCLowThresholdPercent podPidsLimit nodeStatusMaxImages
    maxOpenFiles kubeAPIQPS kubeAPIBurst maxParallelImagePulls evictionMaxPodGracePeriod podsPerCore
    iptablesMasqueradeBit iptablesDropBit containerLogMaxFiles containerLogMaxWorkers
"""
_SWITCHES = """
    enableServer rotateCertificates serverTLSBootstrap enableDebuggingHandlers enableContentionProfiling cgroupsPerQOS
    singleProcessOOMKill runOnce cpuCFSQuota serializeImagePulls mergeDefaultEvictionSettings
    enableControllerAttachDetach protectKernelDefaults makeIPTablesUtilChains failSwapOn kernelMemcgNotification
    enableSystemLogHandler enableSystemLogQuery enableProfilingHandler enableDebugFlagsHandler seccompDefault
    registerNode localStorageCapacityIsolation failCgroupV1
"""
_TEXT_LISTS = """
    tlsCipherSuites clusterDNS enforceNodeAllocatable allowedUnsafeSysctls preloadedImagesVerificationAllowlist
"""
_TEXT_MAPS = """
    cpuManagerPolicyOptions topologyManagerPolicyOptions qosReserved evictionHard evictionSoft evictionSoftGracePeriod
    evictionMinimumReclaim systemReserved kubeReserved defaultPodSysctls
"""

_Quantities = dict[str, str | int | float]
_Enabled = _fields("enabled", bool)

_Authentication = _struct(
    "Authentication",
    _fields("x509", _struct("X509Authentication", _fields("clientCAFile", str))),
    _fields("webhook", _struct("WebhookAuthentication", _Enabled, _fields("cacheTTL", str))),
    _fields("anonymous", _struct("AnonymousAuthentication", _Enabled)),
)
_Authorization = _struct(
    "Authorization",
    _fields("mode", str),
    _fields("webhook", _struct("WebhookAuthorization", _fields("cacheAuthorizedTTL cacheUnauthorizedTTL", str))),
)
_LogOptions = _struct(
    "LogOptions",
    _fields("text json", _struct("LogFormat", _fields("splitStream", bool), _fields("infoBufferSize", str | int))),
)
_Logging = _struct(
    "Logging",
    _fields("format", str),
    _fields("verbosity", int),
    _fields("flushFrequency", str | int),
    _fields("vmodule", _list_of(_struct("VModule", _fields("filePattern", str), _fields("verbosity", int)))),
    _fields("options", _LogOptions),
)
_ShutdownGrace = _struct("ShutdownGrace", _fields("priority shutdownGracePeriodSeconds", int))
_MemoryReservation = _struct("MemoryReservation", _fields("numaNode", int), _fields("limits", _Quantities))
_Tracing = _struct("Tracing", _fields("endpoint", str), _fields("samplingRatePerMillion", int))

KubeletConfiguration = _struct(
    "KubeletConfiguration",
    _fields(_TEXTS + DURATIONS, str),
    _fields(_NUMBERS, int),
    _fields("maxPods", int | str),
    _fields("memoryThrottlingFactor", float),
    _fields(_SWITCHES, bool),
    _fields(_TEXT_LISTS, tuple[str, ...]),
    _fields("tlsCurvePreferences", tuple[int, ...]),
    _fields(_TEXT_MAPS, dict[str, str]),
    _fields("staticPodURLHeader", dict[str, tuple[str, ...]]),
    _fields("featureGates", dict[str, bool]),
    _fields("registerWithTaints", tuple[Any, ...]),
    _fields("authentication", _Authentication),
    _fields("authorization", _Authorization),
    _fields("logging", _Logging),
    _fields("memorySwap", _struct("MemorySwap", _fields("swapBehavior", str))),
    _fields("crashLoopBackOff", _struct("CrashLoopBackOff", _fields("maxContainerRestartPeriod", str))),
    _fields("shutdownGracePeriodByPodPriority", _list_of(_ShutdownGrace)),
    _fields("reservedMemory", _list_of(_MemoryReservation)),
    _fields("tracing", _Tracing),
    _fields("userNamespaces", _struct("UserNamespaces", _fields("idsPerPod", int))),
)
"""The shape of the file. `maxPods` may be text, because an EC2NodeClass may hold an expression there."""

NESTED_DURATIONS = (
    ("authentication", "webhook", "cacheTTL"),
    ("authorization", "webhook", "cacheAuthorizedTTL"),
    ("authorization", "webhook", "cacheUnauthorizedTTL"),
    ("crashLoopBackOff", "maxContainerRestartPeriod"),
)


_KUBELET: Path = ("spec", "kubelet")
_SIGNALS = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
)
_RESERVABLE = (CPU, MEMORY, EPHEMERAL_STORAGE, "pid")
_EVERY_FAMILY = (
    "clusterDNS",
    "maxPods",
    "podsPerCore",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMaxPodGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "cpuCFSQuota",
)
_MOST_PODS = 2**31 - 1


def kubelet_problems(node_class: EC2NodeClass) -> Iterator[Problem]:
    """Of the kubelet map, by itself and for the AMI family it is for."""
    shaped, problems = decode(node_class.spec.kubelet, KubeletConfiguration)
    yield from (((*_KUBELET, *path), reason) for path, reason in problems)
    if "registerWithTaints" in node_class.spec.kubelet:
        yield (*_KUBELET, "registerWithTaints"), "write taints or startupTaints in the NodePool instead"
    if shaped is not None:
        kubelet = {field: value for field, value in msgspec.to_builtins(shaped).items() if value is not None}
        yield from _durations(kubelet)
        yield from _numbers(kubelet)
        yield from _reserved(kubelet)
        yield from _evictions(kubelet)
        yield from _family_limits(kubelet, ami_family(node_class.spec))


def first_kubelet_problem(node_class: EC2NodeClass) -> tuple[str, Problem] | None:
    """The first problem of the kubelet map, with the reason that ValidationSucceeded gives for it in Karpenter."""
    for_any = replace(node_class, spec=replace(node_class.spec, ami_family=CUSTOM))
    wrong_anyway = set(kubelet_problems(for_any))
    for path, text in kubelet_problems(node_class):
        value: Any = node_class.spec.kubelet
        for step in path[2:]:
            value = value.get(step) if isinstance(value, Mapping) else None
        is_of_expression = isinstance(value, str) and expressions.is_expression(value)
        reason = "KubeletExpressionInvalid" if is_of_expression else "InvalidKubeletConfiguration"
        if (path, text) not in wrong_anyway:
            reason = "UnsupportedKubeletConfiguration"
        return reason, (path, text)
    return None


def _durations(kubelet: Mapping[str, Any]) -> Iterator[Problem]:
    for path in (*((name,) for name in DURATIONS.split()), *NESTED_DURATIONS):
        if not absent(kubelet, path):
            value: Any = kubelet
            for step in path:
                value = value[step]
            yield from attempt(times.go_seconds, value, (*_KUBELET, *path))


def _numbers(kubelet: Mapping[str, Any]) -> Iterator[Problem]:
    for field in ("podsPerCore", "evictionMaxPodGracePeriod"):
        yield from within(kubelet.get(field), 0, _MOST_PODS, (*_KUBELET, field))
    max_pods = kubelet.get("maxPods")
    if isinstance(max_pods, str):
        if max_pods.isascii() and max_pods.isdigit():
            max_pods = int(max_pods)
        else:
            if expressions.is_expression(max_pods) or max_pods.endswith("%"):
                yield from _amount(max_pods, (*_KUBELET, "maxPods"))
            else:
                yield (*_KUBELET, "maxPods"), f"must be a whole number or an expression, is {max_pods!r}"
            max_pods = None
    yield from within(max_pods, 0, _MOST_PODS, (*_KUBELET, "maxPods"))
    high, low = (kubelet.get(f"imageGC{which}ThresholdPercent") for which in ("High", "Low"))
    yield from within(high, 0, 100, (*_KUBELET, "imageGCHighThresholdPercent"))
    yield from within(low, 0, 100, (*_KUBELET, "imageGCLowThresholdPercent"))
    if high is not None and low is not None and high <= low:
        yield (*_KUBELET, "imageGCHighThresholdPercent"), f"must be above imageGCLowThresholdPercent ({low}), is {high}"


def _reserved(kubelet: Mapping[str, Any]) -> Iterator[Problem]:
    for field in ("kubeReserved", "systemReserved"):
        for resource, text in (kubelet.get(field) or {}).items():
            path = (*_KUBELET, field, resource)
            if resource not in _RESERVABLE:
                yield path, f"cannot be reserved; {', '.join(_RESERVABLE)} can"
            elif text.startswith("-"):
                yield path, f"must not be negative, is {text!r}"
            else:
                yield from _amount(text, path)


def _evictions(kubelet: Mapping[str, Any]) -> Iterator[Problem]:
    for signal, text in (kubelet.get("evictionMinimumReclaim") or {}).items():
        path = (*_KUBELET, "evictionMinimumReclaim", signal)
        yield from _signal(signal, path)
        if expressions.is_expression(text):
            yield path, f"{text!r} is neither a quantity nor a percentage"
        else:
            yield from _threshold(text, path)
    for field in ("evictionHard", "evictionSoft"):
        for signal, text in (kubelet.get(field) or {}).items():
            yield from _signal(signal, (*_KUBELET, field, signal))
            yield from _threshold(text, (*_KUBELET, field, signal))
    soft = kubelet.get("evictionSoft") or {}
    grace = kubelet.get("evictionSoftGracePeriod") or {}
    for signal, text in grace.items():
        path = (*_KUBELET, "evictionSoftGracePeriod", signal)
        yield from _signal(signal, path)
        yield from attempt(times.go_seconds, text, path)
        if text.startswith("-"):
            yield path, f"must not be negative, is {text!r}"
        if signal not in soft:
            yield path, "evictionSoft has no threshold for this signal"
    for signal in soft:
        if signal not in grace:
            yield (*_KUBELET, "evictionSoft", signal), "evictionSoftGracePeriod has no period for this signal"


def _signal(signal: str, path: Path) -> Iterator[Problem]:
    if signal not in _SIGNALS:
        yield path, f"unknown eviction signal; known are {', '.join(_SIGNALS)}"


def _threshold(text: str, path: Path) -> Iterator[Problem]:
    if not text.endswith("%"):
        if text.startswith("-"):
            yield path, f"must not be negative, is {text!r}"
        else:
            yield from _amount(text, path)
        return
    try:
        valid = 0 <= float(text[:-1]) <= 100
    except ValueError:
        valid = False
    if not valid:
        yield path, f"{text!r} is not a percentage from 0% to 100%"


def _amount(text: str, path: Path) -> Iterator[Problem]:
    """A quantity, or an expression that stands for one."""
    if text.endswith("%"):
        yield path, f"{text!r} is a percentage, which kubelet takes for eviction alone; an expression can say it"
    elif expressions.is_expression(text):
        yield from attempt(expressions.parse_number_expression, text, path)


def _family_limits(kubelet: Mapping[str, Any], family: str) -> Iterator[Problem]:
    """Yield the settings that the bootstrap of a family cannot pass to its kubelet. Users of Custom write their own."""
    if family in ("", "AL2023", CUSTOM):
        return
    for field in kubelet:
        if field not in _EVERY_FAMILY:
            yield (*_KUBELET, field), f"AMIs of family {family} cannot be given this setting; AL2023 can"
    if family == "Bottlerocket" and kubelet.get("podsPerCore") is not None:
        yield (*_KUBELET, "podsPerCore"), "Bottlerocket has no podsPerCore"
    if len(kubelet.get("clusterDNS") or ()) > 1:
        yield (*_KUBELET, "clusterDNS"), f"AMIs of family {family} take one address"
