"""AWS clients: lazily made, one of each, configured alike."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from botocore.config import Config
from botocore.exceptions import ParamValidationError

from shiplap.aws import session
from shiplap.aws.bus import EventBridgeBus
from shiplap.cluster import watcher
from shiplap.cluster.transport import KEPT_ALIVE
from shiplap.errors import AwsError
from shiplap.ports import BusEvent
from shiplap_lab.fakes.signals import FakeClock


@pytest.fixture(autouse=True)
def _own_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_CLIENTS", {})
    session.config.cache_clear()
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")


def test_a_client_is_made_once_per_service_and_region() -> None:
    assert session.client("sqs") is session.client("sqs")
    assert session.client("sqs") is not session.client("sqs", "us-east-1")
    assert session.client("sqs", "us-east-1").meta.region_name == "us-east-1"
    assert session.client("sqs").meta.region_name == "eu-west-1"


def test_aws_region_goes_before_the_default_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert session.client("sqs").meta.region_name == "eu-north-1"


def test_clients_retry_in_standard_mode_with_short_time_outs() -> None:
    config = session.client("sqs").meta.config
    assert config.retries == {"mode": "standard", "total_max_attempts": 5}
    assert (config.connect_timeout, config.read_timeout) == (3, 15)
    assert session.config().tcp_keepalive


def test_after_clients_are_forgotten_others_are_made() -> None:
    known = session.client("sqs")
    session.forget_clients()
    assert session.client("sqs") is not known


def test_parameters_are_validated_everywhere_but_in_a_lambda_function(monkeypatch: pytest.MonkeyPatch) -> None:
    session.config.cache_clear()
    with pytest.raises(ParamValidationError):
        session.client("sqs").send_message(QueueUrl="https://queue", MessageBody=1)
    session.config.cache_clear()
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "shiplap-schedule")
    assert not session.config().parameter_validation
    session.config.cache_clear()


def test_no_test_switches_validation_off() -> None:
    tests = Path(__file__).parents[2]
    switch = "parameter_validation" + "=False"
    assert [path.name for path in sorted(tests.rglob("*.py")) if switch in path.read_text()] == []
    assert "AWS_LAMBDA_FUNCTION_NAME" not in os.environ


def test_without_a_region_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    with pytest.raises(AwsError, match="AWS_DEFAULT_REGION"):
        session.client("dynamodb")


def test_credentials_are_those_of_the_clients() -> None:
    session.session.cache_clear()
    assert session.credentials() is session.session().get_credentials()
    assert session.credentials().access_key == "testing"


@pytest.mark.parametrize(
    ("environment", "reason"),
    [({}, "no AWS credentials are configured"), ({"AWS_ACCESS_KEY_ID": "half"}, "cannot be read: Partial credentials")],
)
def test_credentials_that_are_missing_or_cannot_be_read_are_an_error(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], reason: str
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "BOTO_CONFIG"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    session.session.cache_clear()
    with pytest.raises(AwsError, match=reason) as raised:
        session.credentials()
    assert raised.value.code == "NoCredentials"
    session.session.cache_clear()


def test_importing_the_session_does_not_import_botocore() -> None:
    program = "import sys, shiplap.aws.session; print('boto3' in sys.modules, 'botocore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == "False False"


def test_a_profile_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nosuch")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setattr(session, "_CLIENTS", {})
    session.session.cache_clear()
    with pytest.raises(AwsError, match="nosuch") as caught:
        session.client("sqs", "eu-west-1")
    assert caught.value.code == "ProfileNotFound"
    session.session.cache_clear()


class Nat:
    """A gateway that forwards connections to a server, until it forgets them: then it swallows what is sent."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._server = server
        self.connections: list[socket.socket] = []
        self._forgotten: set[socket.socket] = set()
        Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def forget(self) -> None:
        self._forgotten.update(self.connections)

    def _accept(self) -> None:
        while True:
            inside, _ = self._listening.accept()
            outside = socket.create_connection(self._server)
            self.connections.append(inside)
            for ways in ((inside, outside), (outside, inside)):
                Thread(target=self._forward, args=(*ways, inside), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, connection: socket.socket) -> None:
        while data := source.recv(65536):
            if connection not in self._forgotten:
                target.sendall(data)


class Bus(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer = b'{"FailedEntryCount":0,"Entries":[{"EventId":"1"}]}'

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_after_a_quiet_night_an_event_does_not_wait_for_a_connection_that_was_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An attempt on the old connection would end at the read timeout, and the pod's event come 15 s late."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bus)
    Thread(target=server.serve_forever, daemon=True).start()
    nat, clock = Nat(("127.0.0.1", server.server_address[1])), FakeClock()
    monkeypatch.setenv("AWS_ENDPOINT_URL", nat.endpoint)
    without_retries = Config(retries={"total_max_attempts": 1}, read_timeout=5)
    made = session.session().create_client("events", region_name="eu-west-1", config=without_retries)
    bus = EventBridgeBus(session.renew_when_idle(made, clock.now), "bus")
    event = BusEvent("PodPending", {"cluster": "demo"})

    bus.publish([event])
    clock.advance(session.IDLE_S)
    bus.publish([event])
    assert len(nat.connections) == 1
    nat.forget()
    clock.advance(350)
    bus.publish([event])

    assert len(nat.connections) == 2
    server.shutdown()
    server.server_close()


def test_every_client_renews_its_connections() -> None:
    made = session.client("events")
    handlers = made.meta.events._emitter._handlers.prefix_search("before-send.events.PutEvents")
    assert any("renew_when_idle" in getattr(handler, "__qualname__", "") for handler in handlers)


def test_connections_to_api_servers_are_kept_known_to_gateways() -> None:
    """Watches are renewed each minute over the same connection; whatever is silent for longer is probed."""
    options = {option: value for level, option, value in KEPT_ALIVE if level == socket.IPPROTO_TCP}
    assert (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1) in KEPT_ALIVE
    assert options[socket.TCP_KEEPIDLE] + options[socket.TCP_KEEPCNT] * options[socket.TCP_KEEPINTVL] < 350
    assert options[socket.TCP_USER_TIMEOUT] <= 10_000
    assert watcher._WINDOW_S < 350
