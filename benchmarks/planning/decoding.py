"""Reading pods: what the planner's input costs on top of decoding JSON into typed structs, in time and in memory.

Bars: time from bytes to classes at most 1.5 × msgspec's decoding alone; memory at most 2 × the bytes.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from benchmarks.shared.karpenter_workload import DrawnPod, verified
from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.model.planned_pods import sort_pods
from shiplap.scheduling.model.pod_classes import PodClass, group
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.search.improve import clear_cache

REPLICAS = 40
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
KEYS = {"z": "topology.kubernetes.io/zone", "h": "kubernetes.io/hostname"}


class PodList(msgspec.Struct, frozen=True):
    items: tuple[Pod, ...]


def constraints(drawn: DrawnPod) -> dict[str, Any]:
    """The part of a pod's spec that its kind adds."""
    selector = {"matchLabels": {"my-label": drawn.selector}}
    if drawn.kind in KEYS:
        spread = {"maxSkew": 1, "topologyKey": KEYS[drawn.kind], "whenUnsatisfiable": "DoNotSchedule"}
        return {"topologySpreadConstraints": [{**spread, "labelSelector": selector}]}
    if drawn.kind == "a":
        term = {"topologyKey": KEYS["z"], "labelSelector": {"matchLabels": {"my-affininity": drawn.label}}}
        return {"affinity": {"podAffinity": {REQUIRED: [term]}}}
    if drawn.kind == "x":
        term = {"topologyKey": KEYS["h"], "labelSelector": {"matchLabels": {"app": "nginx"}}}
        return {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}
    return {}


def pod_object(number: int, drawn: DrawnPod, *, plain: bool = False) -> dict[str, Any]:
    """A pending pod of a Deployment as an API server returns it, about 5 KB with its managed fields."""
    requests = {"cpu": f"{drawn.cpu_m}m", "memory": f"{drawn.memory_mi}Mi"}
    token = f"kube-api-access-{number:05x}"
    app = f"service-{number // REPLICAS}"
    label_key = {"a": "my-affininity", "x": "app"}.get(drawn.kind, "my-label")
    container = {
        "name": "app",
        "image": f"123456789012.dkr.ecr.us-east-1.amazonaws.com/team/{app}:1.2.{number % 50}",
        "command": ["/bin/server", "--config=/etc/app/config.yaml", "--listen=:8080", "--log-format=json"],
        "ports": [
            {"containerPort": 8080, "name": "http", "protocol": "TCP"},
            {"containerPort": 9090, "name": "metrics"},
        ],
        "env": [{"name": f"SETTING_{k}", "value": f"some-value-of-setting-{k}"} for k in range(10)]
        + [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
        "resources": {"limits": {"memory": requests["memory"]}, "requests": requests},
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/app", "readOnly": True},
            {"name": token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True},
        ],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 5},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True, "readOnlyRootFilesystem": True},
    }
    managed = {
        "f:metadata": {
            "f:annotations": {".": {}, "f:prometheus.io/scrape": {}, "f:prometheus.io/port": {}},
            "f:generateName": {},
            "f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}, f"f:{label_key}": {}},
            "f:ownerReferences": {".": {}, f'k:{{"uid":"{number // REPLICAS:036d}"}}': {}},
        },
        "f:spec": {
            "f:affinity": {},
            "f:containers": {
                'k:{"name":"app"}': {
                    ".": {},
                    "f:command": {},
                    "f:env": {
                        ".": {},
                        **{f'k:{{"name":"SETTING_{k}"}}': {".": {}, "f:name": {}, "f:value": {}} for k in range(10)},
                    },
                    "f:image": {},
                    "f:imagePullPolicy": {},
                    "f:livenessProbe": {".": {}, "f:httpGet": {".": {}, "f:path": {}, "f:port": {}, "f:scheme": {}}},
                    "f:readinessProbe": {".": {}, "f:httpGet": {".": {}, "f:path": {}, "f:port": {}, "f:scheme": {}}},
                    "f:resources": {".": {}, "f:limits": {}, "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}}},
                    "f:securityContext": {".": {}, "f:capabilities": {".": {}, "f:drop": {}}, "f:runAsNonRoot": {}},
                    "f:terminationMessagePath": {},
                    "f:volumeMounts": {".": {}, 'k:{"mountPath":"/etc/app"}': {".": {}, "f:name": {}}},
                }
            },
            "f:dnsPolicy": {},
            "f:restartPolicy": {},
            "f:schedulerName": {},
            "f:securityContext": {},
            "f:terminationGracePeriodSeconds": {},
            "f:tolerations": {},
        },
    }
    return {
        "metadata": {
            "name": f"{app}-6b7f9c{number // REPLICAS:04x}-{number:05x}",
            "generateName": f"{app}-6b7f9c{number // REPLICAS:04x}-",
            "namespace": f"team-{number // REPLICAS % 20}",
            "uid": f"{number:08x}-1111-4222-8333-{number:012x}",
            "resourceVersion": str(10_000_000 + number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"},
            "labels": {
                "app": "nginx" if drawn.kind == "x" else app,
                "pod-template-hash": f"6b7f9c{number // REPLICAS:04x}",
            }
            | ({label_key: drawn.label} if drawn.label else {}),
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{app}-6b7f9c{number // REPLICAS:04x}",
                    "uid": f"{number // REPLICAS:036d}",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [
                {
                    "manager": "kube-controller-manager",
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": "2026-01-01T00:00:00Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": managed,
                }
            ],
        },
        "spec": {
            "volumes": [
                {"name": "config", "configMap": {"name": f"{app}-config", "defaultMode": 420}},
                {
                    "name": token,
                    "projected": {
                        "defaultMode": 420,
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                        ],
                    },
                },
            ],
            "containers": [container],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": app,
            "serviceAccount": app,
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{state}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for state in ("not-ready", "unreachable")
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
            **({} if plain else constraints(drawn)),
        },
        "status": {
            "phase": "Pending",
            "qosClass": "Burstable",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                    "reason": "Unschedulable",
                    "message": "0/3 nodes are available: 3 Insufficient cpu, 1 node(s) had untolerated taint.",
                }
            ],
        },
    }


def pod_list(drawn: list[DrawnPod], *, plain: bool = False, first: int = 0) -> bytes:
    """A PodList as an API server sends it, numbered from `first`. `plain` leaves the kinds' constraints out."""
    items = [pod_object(number, pod, plain=plain) for number, pod in enumerate(drawn, first)]
    return json.dumps({"kind": "PodList", "apiVersion": "v1", "items": items}, separators=(",", ":")).encode()


def replicated(drawn: list[DrawnPod]) -> list[DrawnPod]:
    """The same number of pods, the replicas of one Deployment all like its first, as in real clusters."""
    return [drawn[number // REPLICAS * REPLICAS] for number in range(len(drawn))]


def classes_of(pods: tuple[Pod, ...]) -> list[PodClass]:
    """The planner's input."""
    return group(sort_pods(pods, nodes=(), leaving=()).pending)


def unseen(snapshot: Snapshot) -> Snapshot:
    """The snapshot as a new process sees it: with nothing known yet of its pods, and no search remembered."""
    clear_cache()
    return replace(snapshot, view=replace(snapshot.view))


def median_s(work: Callable[[], object], repeats: int = 9) -> float:
    """Seconds of processor time, the median of several runs after a first one that is not counted."""
    work()
    times = []
    for _ in range(repeats):
        gc.collect()
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return statistics.median(times)


def peak_bytes(work: Callable[[], object]) -> int:
    """The largest amount of memory held while working, its result included."""
    gc.collect()
    tracemalloc.start()
    kept = work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return peak


def main() -> None:
    decoder = msgspec.json.Decoder(PodList)
    table = Table(
        "pods",
        "of",
        "bytes/pod",
        "classes",
        "decode ms",
        "+ classes ms",
        "ratio (≤ 1.5)",
        "held / bytes",
        "with bytes (≤ 2)",
    )
    drawn = [("each drawn", number, verified(number)) for number in (1000, 10_000)]
    drawn += [("replicas alike", number, replicated(pods)) for _, number, pods in drawn]
    for of, number, pods in drawn:
        raw = pod_list(pods)

        def both(raw: bytes = raw) -> tuple[tuple[Pod, ...], list[PodClass]]:
            pods = decoder.decode(raw).items
            return pods, classes_of(pods)

        def decode(raw: bytes = raw) -> PodList:
            return decoder.decode(raw)

        decode_s, both_s = median_s(decode), median_s(both)
        held = peak_bytes(both) / len(raw)
        table.add_row(
            str(number),
            of,
            f"{len(raw) / number:.0f}",
            str(len(both()[1])),
            f"{decode_s * 1000:.1f}",
            f"{both_s * 1000:.1f}",
            f"{both_s / decode_s:.2f}",
            f"{held:.2f}",
            f"{held + 1:.2f}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
