"""The fields of the kubelet's configuration file (kubelet.config.k8s.io/v1beta1), so that a misspelt one is noticed.

An EC2NodeClass may set most of them; what a family of AMIs can pass on is checked by `kubelet_rules`.
"""

from __future__ import annotations

from typing import Any

import msgspec


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
