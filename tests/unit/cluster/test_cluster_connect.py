"""From settings to a connection: endpoints, authorities, tokens, and answers that are none."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
from botocore.credentials import Credentials
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shiplap.cluster.client import KubernetesClient
from shiplap.cluster.connect import ApiEndpoint, connect
from shiplap.errors import ClusterDenied, ClusterError, ClusterUnreachable, InvalidInput
from shiplap.settings import ClusterSettings
from shiplap_lab.fakes.signals import FakeClock


class Answers(BaseHTTPRequestHandler):
    """Answers each request with the next of `queue` and remembers what it was asked."""

    queue: ClassVar[list[tuple[int, bytes]]] = []
    asked: ClassVar[list[tuple[str, str]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization", "")))
        status, body = self.queue.pop(0) if self.queue else (200, b'{"metadata":{},"items":[]}')
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def answers() -> Iterator[HTTPServer]:
    Answers.queue, Answers.asked = [], []
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def client(found: ApiEndpoint | None = None, **settings: str) -> KubernetesClient:
    def describe(name: str) -> ApiEndpoint:
        assert name == "prod"
        assert found is not None
        return found

    return connect(
        ClusterSettings(name="prod", region="eu-west-1", **settings),
        describe_cluster=describe,
        credentials=lambda: Credentials("AKID", "secret"),
        clock=FakeClock(),
        sleep=lambda _: None,
        back_off_s=(),
    )


def url(server: HTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def test_an_endpoint_of_the_settings_is_used_as_it_is_with_its_path(answers: HTTPServer) -> None:
    assert client(endpoint=f"{url(answers)}/clusters/prod/", token="t").nodes() == ()
    assert Answers.asked == [("/clusters/prod/api/v1/nodes?limit=500", "Bearer t")]


def test_without_an_endpoint_the_cluster_is_described_and_entered_by_iam(answers: HTTPServer) -> None:
    client(ApiEndpoint(url(answers))).nodes()
    assert Answers.asked[0][1].startswith("Bearer k8s-aws-v1.")


def test_a_refused_token_is_renewed_once(answers: HTTPServer) -> None:
    Answers.queue = [(401, b"{}")]
    assert client(ApiEndpoint(url(answers))).nodes() == ()
    Answers.queue = [(401, b"{}"), (401, b'{"message":"Unauthorized"}')]
    with pytest.raises(ClusterDenied, match="Unauthorized"):
        client(ApiEndpoint(url(answers))).nodes()
    assert len(Answers.asked) == 4


@pytest.mark.parametrize("body", [b"<html>hello</html>", b'{"items": 5}', b'{"items": [' + b"[" * 100_000, b""])
def test_an_answer_that_is_none_is_a_cluster_error(answers: HTTPServer, body: bytes) -> None:
    Answers.queue = [(200, body)]
    with pytest.raises(ClusterError, match="not what an API server sends"):
        client(endpoint=url(answers)).nodes()


def test_an_error_from_something_in_between_keeps_its_status(answers: HTTPServer) -> None:
    Answers.queue = [(502, b"<html>bad gateway</html>")]
    with pytest.raises(ClusterUnreachable, match="status 502"):
        client(endpoint=url(answers)).nodes()


def test_null_items_are_an_empty_list(answers: HTTPServer) -> None:
    Answers.queue = [(200, b'{"metadata":{"resourceVersion":"7"},"items":null}')]
    assert client(endpoint=url(answers)).list_for_watch("nodes") == ((), "7")


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"endpoint": "ftp://somewhere"}, "endpoint"),
        ({"endpoint": "just-a-name"}, "endpoint"),
        ({"endpoint": "https://api", "certificate_authority": "not base64!"}, "certificateAuthority"),
        ({"endpoint": "https://api", "certificate_authority": b64encode(b"no PEM").decode()}, "certificateAuthority"),
        ({"endpoint": "https://api", "certificate_authority": b64encode(b"\xff").decode()}, "certificateAuthority"),
    ],
)
def test_unusable_settings_name_their_field(settings: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidInput, match="cluster prod") as caught:
        client(**settings)
    assert caught.value.field == field


class Authority:
    """A certificate authority as EKS makes them: without key identifiers."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        self.certificate = (
            self._signed(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.base64_pem = b64encode(self.certificate.public_bytes(serialization.Encoding.PEM)).decode()

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
        )

    def server_context(self, folder: Path, address: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
        alternative = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
        leaf = self._signed(name, key.public_key()).add_extension(alternative, critical=False)
        pem = leaf.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        pem += key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (folder / "server.pem").write_bytes(pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem")
        return context


class TestTls:
    @pytest.fixture
    def authority(self) -> Authority:
        return Authority()

    def serve(self, answers: HTTPServer, context: ssl.SSLContext) -> str:
        answers.socket = context.wrap_socket(answers.socket, server_side=True)
        return f"https://127.0.0.1:{answers.server_port}"

    def test_an_authority_without_key_identifiers_is_trusted(
        self, answers: HTTPServer, authority: Authority, tmp_path: Path
    ) -> None:
        endpoint = self.serve(answers, authority.server_context(tmp_path, "127.0.0.1"))
        assert client(endpoint=endpoint, certificate_authority=authority.base64_pem).nodes() == ()

    def test_an_authority_with_letters_that_base64_lacks_is_refused(self, authority: Authority) -> None:
        """A decoder that passes over them would accept what was damaged on its way."""
        with pytest.raises(InvalidInput, match="not a PEM certificate in base64"):
            client(
                endpoint="https://api", certificate_authority=f"{authority.base64_pem[:40]}!{authority.base64_pem[40:]}"
            )

    @pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
    def test_another_authority_or_another_name_is_not(
        self, answers: HTTPServer, authority: Authority, tmp_path: Path, address: str
    ) -> None:
        endpoint = self.serve(answers, authority.server_context(tmp_path, address))
        trusted = Authority() if address == "127.0.0.1" else authority
        with pytest.raises(ClusterUnreachable, match="certificate"):
            client(endpoint=endpoint, certificate_authority=trusted.base64_pem).nodes()
        with pytest.raises(ClusterUnreachable, match="certificate"):
            client(endpoint=endpoint).nodes()
