"""From a cluster's settings to a client of its API server."""

from __future__ import annotations

import ssl
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import urllib3

from shiplap.cluster.client import KubernetesClient
from shiplap.cluster.transport import BACK_OFF_S, KEPT_ALIVE, MOST_ANSWER_BYTES, StaticToken, TokenSource, Transport
from shiplap.errors import InvalidInput
from shiplap.ports import Clock
from shiplap.settings import ClusterSettings

if TYPE_CHECKING:
    from botocore.credentials import Credentials


class ApiEndpoint(msgspec.Struct, frozen=True):
    """The address of an API server, and the certificate authority that vouches for it.

    `certificate_authority` is PEM in base64, as EKS returns it.
    """

    endpoint: str
    certificate_authority: str = ""


def connect(
    settings: ClusterSettings,
    *,
    describe_cluster: Callable[[str], ApiEndpoint],
    credentials: Callable[[], Credentials],
    clock: Clock,
    sleep: Callable[[float], None],
    back_off_s: Sequence[float] = BACK_OFF_S,
    page_bytes: int = MOST_ANSWER_BYTES,
) -> KubernetesClient:
    """A client for the cluster; nothing is sent to it yet. A page of several objects has `page_bytes` at most.

    The endpoint comes from the settings or else from `describe_cluster`; a cluster without a token of its own is
    entered with an EKS token of `credentials`.

    Raises:
        InvalidInput: the endpoint or the certificate authority is unusable.
    """
    endpoint = ApiEndpoint(settings.endpoint, settings.certificate_authority)
    if not endpoint.endpoint:
        endpoint = describe_cluster(settings.name)
    transport = endpoint_transport(
        settings,
        endpoint,
        credentials=credentials,
        clock=clock,
        sleep=sleep,
        back_off_s=back_off_s,
        page_bytes=page_bytes,
    )
    return KubernetesClient(transport)


def endpoint_transport(
    settings: ClusterSettings,
    endpoint: ApiEndpoint,
    *,
    credentials: Callable[[], Credentials],
    clock: Clock,
    sleep: Callable[[float], None],
    back_off_s: Sequence[float] = BACK_OFF_S,
    page_bytes: int = MOST_ANSWER_BYTES,
) -> Transport:
    """The way to the API server at an endpoint; nothing is sent yet. Raises InvalidInput as `connect` does."""
    source = f"settings of cluster {settings.name}"
    scheme = urllib3.util.parse_url(endpoint.endpoint).scheme
    if scheme not in ("http", "https"):
        raise InvalidInput(source, f"{endpoint.endpoint!r} is not an http or https URL", field="endpoint")
    tls = {"ssl_context": _tls(endpoint.certificate_authority, source)} if scheme == "https" else {}
    pool = urllib3.connection_from_url(endpoint.endpoint, maxsize=8, socket_options=KEPT_ALIVE, **tls)
    token = _token(settings, credentials, clock)
    return Transport(
        endpoint.endpoint,
        token,
        pool=pool,
        sleep=sleep,
        back_off_s=back_off_s,
        most_bytes=page_bytes,
        most_object_bytes=MOST_ANSWER_BYTES,
    )


def _token(settings: ClusterSettings, credentials: Callable[[], Credentials], clock: Clock) -> TokenSource:
    if settings.token:
        return StaticToken(settings.token)
    from shiplap.cluster.eks_token import EksToken  # noqa: PLC0415 - botocore's signer costs time where no one needs it

    return EksToken(settings.name, settings.region, credentials, clock)


def _tls(certificate_authority: str, source: str) -> ssl.SSLContext:
    """Verifies certificate and host name, against the cluster's own authority when it has one.

    Not ssl.create_default_context: since Python 3.13 that refuses authorities without an Authority Key Identifier, and
    those of EKS have none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not certificate_authority:
        context.load_default_certs()
        return context
    try:
        context.load_verify_locations(cadata=b64decode(certificate_authority, validate=True).decode("ascii"))
    except (Base64Error, UnicodeDecodeError, ssl.SSLError) as error:
        raise InvalidInput(source, f"not a PEM certificate in base64: {error}", field="certificateAuthority") from error
    return context
