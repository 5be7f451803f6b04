"""`shiplap plan --context` on a cluster of 1,000 nodes and 20,000 pods: from the first request to the printed plan.

The API server is the one of `shiplap lab dev`, in a process of its own; it answers from memory, as a watch cache does,
so the figure is what the command itself takes, and what one core takes to make the answers.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.fakes.cluster import ApiServer
from shiplap_lab.fakes.signals import FakeClock

NODES, PODS, PENDING = 1_000, 20_000, 1_000
POOL: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "general"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
            }
        }
    },
}
NODE_CLASS: dict[str, Any] = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "default"},
    "spec": {
        "role": "node",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"a": "b"}}],
        "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
    },
}


def node(number: int) -> dict[str, Any]:
    labels = {
        "karpenter.sh/nodepool": "general",
        "karpenter.sh/capacity-type": "on-demand",
        "node.kubernetes.io/instance-type": "m6i.4xlarge",
        "topology.kubernetes.io/zone": f"us-east-1{'abc'[number % 3]}",
        "topology.kubernetes.io/region": "us-east-1",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    }
    return {
        "metadata": {"name": f"node-{number:04d}", "labels": labels},
        "spec": {"providerID": f"aws:///us-east-1a/i-{number:017x}"},
        "status": {
            "allocatable": {"cpu": "15890m", "memory": "60000Mi", "pods": "234"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": [{"names": [f"registry.example/image-{image}@sha256:{'0' * 64}"]} for image in range(20)],
        },
    }


def pod(number: int) -> dict[str, Any]:
    """About as long as what an API server sends: 3 KB."""
    waits = number < PENDING
    environment = [{"name": f"SETTING_{each}", "value": "x" * 40} for each in range(20)]
    container = {
        "name": "main",
        "image": "registry.example/service:1.2.3",
        "env": environment,
        "resources": {"requests": {"cpu": f"{100 + number % 7 * 100}m", "memory": f"{256 + number % 5 * 256}Mi"}},
    }
    status = {"phase": "Pending" if waits else "Running", "containerStatuses": [{"name": "main", "ready": not waits}]}
    return {
        "metadata": {
            "name": f"pod-{number:05d}",
            "namespace": f"team-{number % 40}",
            "labels": {"app": str(number % 200)},
        },
        "spec": {"containers": [container], **({} if waits else {"nodeName": f"node-{number % NODES:04d}"})},
        "status": status,
    }


def serve(ready: Connection) -> None:
    api = ApiServer(FakeClock(), log_limit=1)
    for number in range(NODES):
        api.create("nodes", node(number))
    for number in range(PODS):
        api.create("pods", pod(number))
    api.create("nodepools", POOL)
    api.create("ec2nodeclasses", NODE_CLASS)
    with KubeHttpServer(api) as http:
        ready.send(http.endpoint)
        ready.recv()


def main() -> None:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,))
    server.start()
    endpoint = here.recv()
    config = {
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": ""}}],
        "clusters": [{"name": "bench", "cluster": {"server": endpoint}}],
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config")
        file.write_bytes(msgspec.json.encode(config))
        command = [sys.executable, "-c", "from shiplap_cli.main import main; main()", "plan", "--no-aws"]
        for output in ("json", "table"):
            took = []
            for _ in range(3):
                started, used = time.monotonic(), os.times().children_user
                done = subprocess.run(  # noqa: S603
                    [*command, "--kubeconfig", str(file), "-o", output], capture_output=True, check=False
                )
                took.append((time.monotonic() - started, os.times().children_user - used))
                if done.returncode:
                    raise SystemExit(done.stderr.decode())
            wall, cpu = min(took)
            print(f"{output}: {NODES} nodes, {PODS} pods, {PENDING} pending: {wall:.2f} s, {cpu:.2f} s its own")
    here.send("end")
    server.join()


if __name__ == "__main__":
    main()
