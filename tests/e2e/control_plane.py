"""A real Kubernetes control plane on loopback: etcd, kube-apiserver, kube-scheduler, kube-controller-manager and kwok.

No containers, no privileges: five processes with files in one folder, which end with this process, however it ends.
RBAC is on, and every write to a pod is in the audit log as EKS writes it.
"""

from __future__ import annotations

import json
import secrets
import shutil
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import urllib3
from urllib3.exceptions import NewConnectionError, ProtocolError

from shiplap_lab.emulated_aws.processes import Process
from tests.e2e import programs
from tests.e2e.certificates import Authority, new_key

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "resources": [{"group": "coordination.k8s.io"}, {"group": "", "resources": ["events"]}]},
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch", "delete"],
            "resources": [{"group": "", "resources": ["pods", "pods/status", "pods/binding", "pods/eviction"]}],
        },
        {"level": "Metadata"},
    ],
}
"""As EKS: bodies of what is written to pods, metadata of everything else, nothing about leases."""

ADMINISTRATOR, SHIPLAP, READER = "administrator", "shiplap", "reader"
"""Users with tokens of their own: of the group system:masters, of the group that docs/rbac.yaml binds, of no group."""

_SCHEDULER = "system:kube-scheduler"
"""What it may do, every API server knows; the audit log names it."""

_GROUPS = {ADMINISTRATOR: "system:masters", SHIPLAP: "shiplap", READER: "readers", _SCHEDULER: ""}
_STAGES = Path(__file__).with_name("stages.yaml")
_START_TIMEOUT_S = 90.0
_REQUESTS_PER_S = 1000
_LARGEST_AUDIT_MB = 4000  # it is read as a whole; by default, what thousands of pods write is more than one file
_LESS_GARBAGE_COLLECTION = {"GOGC": "400", "GOMEMLIMIT": "2GiB"}
"""Processor time is scarcer than memory where one machine is a whole region: thousands of pods make garbage."""

ISSUER = "https://kubernetes.default.svc"


class ControlPlane:
    """Started on entry; on exit all processes have ended and the folder is gone, unless the block failed.

    `controllers` are kube-controller-manager's, all but none of them when empty: then it is not started. `nodes` starts
    kwok, which makes every Node ready and runs its pods. `extenders` are kube-scheduler's, `without_admission` names
    admission plugins that the API server does without.

    Attributes:
        tokens: bearer tokens by user.
        folder: logs (`*.log`) and the audit log (`audit.log`).
    """

    def __init__(
        self,
        folder: Path,
        *,
        scheduler: bool = True,
        controllers: Sequence[str] = ("*",),
        nodes: bool = True,
        extenders: Sequence[Mapping[str, Any]] = (),
        without_admission: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.tokens = {user: secrets.token_hex(16) for user in _GROUPS}
        self._programs = programs.find()
        self._scheduler = scheduler
        self._controllers = tuple(controllers)
        self._nodes = nodes
        self._extenders = [dict(item) for item in extenders]
        self._without_admission = tuple(without_admission)
        self._running = ExitStack()
        self._api: Process | None = None
        self._ports = dict(
            zip(("etcd", "peer", "api", "scheduler", "controllers", "kwok"), _free_ports(6), strict=True)
        )

    @property
    def endpoint(self) -> str:
        """The API server's URL."""
        return f"https://127.0.0.1:{self._ports['api']}"

    @property
    def certificate_authority(self) -> str:
        """The certificate that vouches for the API server: PEM in base64, as EKS returns it."""
        return b64encode((self.folder / "ca.crt").read_bytes()).decode()

    @property
    def audit_log(self) -> Path:
        """One audit event per line."""
        return self.folder / "audit.log"

    @property
    def service_account_key(self) -> Path:
        """The private key that signs the tokens of service accounts, PEM."""
        return self.folder / "service-accounts.key"

    def __enter__(self) -> ControlPlane:
        try:
            self._start()
        except BaseException:
            self._running.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()
        if kind is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def stop_api_server(self) -> None:
        """End the API server; its clients find nobody until `start_api_server`."""
        if self._api is not None:
            self._api.stop()

    def start_api_server(self) -> None:
        """Start the API server, at the same address as before, and wait until it is ready."""
        self._api = self._process("kube-apiserver", self._api_server_flags())
        self._await("kube-apiserver", f"{self.endpoint}/readyz", self._api)

    def compact(self) -> None:
        """Make etcd and the API server forget every version but the newest, by a restart of the latter."""
        self.stop_api_server()
        etcd = f"http://127.0.0.1:{self._ports['etcd']}"
        with urllib3.PoolManager(retries=False) as http:
            newest = http.request("POST", f"{etcd}/v3/kv/range", json={"key": "AA=="}).json()["header"]["revision"]
            http.request("POST", f"{etcd}/v3/kv/compaction", json={"revision": newest, "physical": True})
        self.start_api_server()

    def log(self, program: str) -> str:
        """Return the log of a program."""
        return (self.folder / f"{program}.log").read_text(errors="replace")

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_files()
        etcd = self._process("etcd", self._etcd_flags())
        self._await("etcd", f"http://127.0.0.1:{self._ports['etcd']}/health", etcd)
        self._running.callback(self.stop_api_server)
        self.start_api_server()
        if self._controllers:
            controllers = self._process("kube-controller-manager", self._controller_flags())
            self._await("kube-controller-manager", self._health("controllers"), controllers)
        if self._scheduler:
            scheduler = self._process("kube-scheduler", self._scheduler_flags())
            self._await("kube-scheduler", self._health("scheduler"), scheduler)
        if self._nodes:
            kwok = self._process("kwok", self._kwok_flags())
            self._await("kwok", f"http://127.0.0.1:{self._ports['kwok']}/healthz", kwok)

    def _write_files(self) -> None:
        authority = Authority("tests")
        self._write("ca.crt", authority.certificate)
        certificate, key = authority.issue("127.0.0.1", "localhost")
        self._write("server.crt", certificate)
        self._write("server.key", key)
        self._write("service-accounts.key", new_key())
        tokens = [
            f"{token},{user},{user}" + (f',"{_GROUPS[user]}"' if _GROUPS[user] else "")
            for user, token in self.tokens.items()
        ]
        self._write("tokens.csv", "\n".join(tokens).encode())
        self._write("audit-policy.json", AUDIT_POLICY)
        self._write("kubeconfig.json", self.kubeconfig())
        self._write("scheduler.kubeconfig.json", self.kubeconfig(_SCHEDULER))
        self._write("scheduler.json", self._scheduler_configuration())

    def kubeconfig(self, user: str = ADMINISTRATOR) -> dict[str, Any]:
        """Return the kubeconfig with which the control plane's own programs, or people, enter the API server."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [
                {
                    "name": "here",
                    "cluster": {"server": self.endpoint, "certificate-authority": str(self.folder / "ca.crt")},
                }
            ],
            "users": [{"name": "here", "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
        }

    def _scheduler_configuration(self) -> dict[str, Any]:
        """The default profile, tried again a second later; only a client as quick as a large cluster's."""
        kubeconfig = str(self.folder / "scheduler.kubeconfig.json")
        client = {"kubeconfig": kubeconfig, "qps": _REQUESTS_PER_S, "burst": _REQUESTS_PER_S}
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": client,
            "leaderElection": {"leaderElect": False},
            "extenders": self._extenders,
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 1 if self._extenders else 10,
        }

    def _write(self, name: str, content: bytes | Mapping[str, Any]) -> None:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())

    def _etcd_flags(self) -> dict[str, str]:
        client, peer = (f"http://127.0.0.1:{self._ports[name]}" for name in ("etcd", "peer"))
        return {
            "data-dir": str(self.folder / "etcd"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "log-level": "warn",
            "unsafe-no-fsync": "true",
        }

    def _api_server_flags(self) -> dict[str, str]:
        return {
            "etcd-servers": f"http://127.0.0.1:{self._ports['etcd']}",
            "bind-address": "127.0.0.1",
            "secure-port": str(self._ports["api"]),
            **self._own_certificate(),
            "service-cluster-ip-range": "172.20.0.0/16",
            "service-account-issuer": ISSUER,
            "service-account-key-file": str(self.service_account_key),
            "service-account-signing-key-file": str(self.service_account_key),
            "token-auth-file": str(self.folder / "tokens.csv"),
            "authorization-mode": "RBAC",
            "audit-policy-file": str(self.folder / "audit-policy.json"),
            "audit-log-path": str(self.audit_log),
            "audit-log-maxsize": str(_LARGEST_AUDIT_MB),
            "endpoint-reconciler-type": "none",
            "disable-admission-plugins": ",".join(self._without_admission),
            "external-hostname": "localhost",
        }

    def _own_certificate(self) -> dict[str, str]:
        """All of them live at one address."""
        return {
            "tls-cert-file": str(self.folder / "server.crt"),
            "tls-private-key-file": str(self.folder / "server.key"),
        }

    def _controller_flags(self) -> dict[str, str]:
        return {
            "kubeconfig": str(self.folder / "kubeconfig.json"),
            "bind-address": "127.0.0.1",
            "secure-port": str(self._ports["controllers"]),
            **self._own_certificate(),
            "service-account-private-key-file": str(self.service_account_key),
            "root-ca-file": str(self.folder / "ca.crt"),
            "controllers": ",".join(self._controllers),
            "leader-elect": "false",
            "kube-api-qps": str(_REQUESTS_PER_S),
            "kube-api-burst": str(_REQUESTS_PER_S),
        }

    def _scheduler_flags(self) -> dict[str, str]:
        return {
            "config": str(self.folder / "scheduler.json"),
            "bind-address": "127.0.0.1",
            "secure-port": str(self._ports["scheduler"]),
            **self._own_certificate(),
        }

    def _kwok_flags(self) -> dict[str, str]:
        return {
            "kubeconfig": str(self.folder / "kubeconfig.json"),
            "config": str(_STAGES),
            "manage-all-nodes": "true",
            "node-lease-duration-seconds": "40",
            "server-address": f"127.0.0.1:{self._ports['kwok']}",
        }

    def _health(self, program: str) -> str:
        return f"https://127.0.0.1:{self._ports[program]}/healthz"

    def _process(self, program: str, flags: Mapping[str, str]) -> Process:
        command = [str(self._programs / program), *(f"--{name}={value}" for name, value in flags.items())]
        environment = {"HOME": str(self.folder), "PATH": "/usr/bin:/bin", **_LESS_GARBAGE_COLLECTION}
        process = Process(command, log=self.folder / f"{program}.log", environment=environment, folder=self.folder)
        if program != "kube-apiserver":  # which may have been replaced by another when all are stopped
            self._running.callback(process.stop)
        return process

    def _await(self, program: str, url: str, process: Process) -> None:
        """Until it says that it is well."""
        headers = {"Authorization": f"Bearer {self.tokens[ADMINISTRATOR]}"}
        with urllib3.PoolManager(ca_certs=str(self.folder / "ca.crt"), retries=False) as http:

            def well() -> bool:
                if process.ended:
                    raise process.failure(program)
                try:
                    return http.request("GET", url, headers=headers, timeout=5).status == 200
                except (NewConnectionError, ProtocolError, urllib3.exceptions.TimeoutError):
                    return False

            wait_until(well, f"{program} is well; see {process.log}", timeout_s=_START_TIMEOUT_S, poll_s=0.05)


def wait_until(
    true: Callable[[], object],
    what: str,
    *,
    timeout_s: float = 180.0,
    poll_s: float = 0.1,
    told: Callable[[], str] = str,
) -> None:
    """Ask again and again. Raises TimeoutError that says what was waited for, and what `told` says about it."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:.0f} s until {what}. {told()}")
        time.sleep(poll_s)


def _free_ports(number: int) -> list[int]:
    """Ports that nobody listens on, held open together so that they differ."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
