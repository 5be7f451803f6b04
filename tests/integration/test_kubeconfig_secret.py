"""Clusters outside EKS: a function reads the kubeconfig from Secrets Manager, and again when its token is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from shiplap.aws import session
from shiplap.cluster.enter import parse_secret
from shiplap.errors import AwsError, ClusterDenied, InvalidInput
from shiplap.flows.install import Install
from shiplap.settings import ClusterSettings, ResourceNames, Settings
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.cluster_simulator.access import READ_ONLY
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.fakes.signals import FakeClock
from tests.integration.contracts.in_process_aws import REGION, aws_in_process, make_client

pytestmark = pytest.mark.usefixtures("own_logger")

NAMES = ResourceNames("state", "capacity", "bucket", "bus", "https://sqs/lifecycle")


def kubeconfig(server: str, said: str = "first", **user: Any) -> str:
    return json.dumps(
        {
            "kind": "Config",
            "apiVersion": "v1",
            "clusters": [{"name": "edge", "cluster": {"server": server}}],
            "users": [{"name": "shiplap", "user": {"token": said} | user}],
            "contexts": [{"name": "edge", "context": {"cluster": "edge", "user": "shiplap"}}],
            "current-context": "edge",
        }
    )


@pytest.fixture
def secrets() -> Iterator[Any]:
    with aws_in_process():
        session._CLIENTS.clear()
        session.session.cache_clear()
        yield make_client("secretsmanager")
    session._CLIENTS.clear()
    session.session.cache_clear()


@pytest.fixture
def server() -> Iterator[KubeHttpServer]:
    with KubeHttpServer(ApiServer(FakeClock()), access={"first": READ_ONLY}) as http:
        yield http


def install(secret: str) -> tuple[Install, ClusterSettings]:
    cluster = ClusterSettings(name="edge", region=REGION, endpoint="https://10.1.0.10", kubeconfig_secret=secret)
    return Install("watch", Settings((cluster,)), NAMES), cluster


def test_a_function_enters_by_the_secret_and_a_rotated_token_is_read_anew(secrets: Any, server: KubeHttpServer) -> None:
    arn = secrets.create_secret(Name="edge", SecretString=kubeconfig(server.endpoint))["ARN"]
    own, cluster = install(arn)
    context = own.context(cluster)
    assert context.cluster.nodes() == ()

    server.access = {"second": READ_ONLY}
    secrets.put_secret_value(SecretId=arn, SecretString=kubeconfig(server.endpoint, "second"))
    assert context.cluster.nodes() == ()

    server.access = {"third": READ_ONLY}
    with pytest.raises(ClusterDenied):
        context.cluster.nodes()


def test_a_secret_that_is_not_there_or_empty_says_so(secrets: Any) -> None:
    own, cluster = install("arn:aws:secretsmanager:eu-west-1:123456789012:secret:none-AbCdEf")
    with pytest.raises(AwsError, match="read secret"):
        own.context(cluster).cluster.nodes()
    arn = secrets.create_secret(Name="binary", SecretBinary=b"x")["ARN"]
    own, cluster = install(arn)
    with pytest.raises(AwsError, match="holds no text"):
        own.context(cluster).cluster.nodes()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("apiVersion: v1\nkind: Config\n", "kubectl config view --raw --flatten"),
        ("[]", "not a kubeconfig in JSON"),
        (kubeconfig("https://x", exec={"command": "aws"}), "neither files nor commands"),
        (kubeconfig("https://x", tokenFile="/token"), "neither files nor commands"),
        (kubeconfig("https://x", **{"client-certificate": "a.pem"}), "neither files nor commands"),
        (kubeconfig("10.0.0.1"), "is not an http or https URL"),
        ("{}", "no current context"),
    ],
    ids=["yaml", "list", "exec", "token file", "certificate file", "server", "empty"],
)
def test_a_kubeconfig_that_a_function_cannot_use_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as caught:
        parse_secret(text, "secret edge")
    assert "secret edge" in str(caught.value)
    assert "first" not in str(caught.value), "a token must not be told"
