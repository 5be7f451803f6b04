"""Bearer tokens for EKS: a presigned STS GetCallerIdentity request, which the control plane sends to learn who asks.

Signed with botocore's signer alone; no STS client is made, for no request leaves this process.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import urlencode

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from shiplap.ports import Clock
from shiplap.regions import dns_suffix

_PREFIX = "k8s-aws-v1."
_VALID_S = 15 * 60
_RENEW_BEFORE_S = 60
_URL_EXPIRES_S = 60
"""As `aws eks get-token` writes into the URL; the control plane accepts the token for 15 minutes all the same."""


class EksToken:
    """A TokenSource for one EKS cluster: entered as the IAM identity of `credentials`, cached for 14 minutes."""

    def __init__(self, cluster: str, region: str, credentials: Callable[[], Credentials], clock: Clock) -> None:
        self._cluster = cluster
        self._region = region
        self._credentials = credentials
        self._clock = clock
        self._token = ""
        self._renew_at = 0.0

    def token(self) -> str:
        """The cached token, or a new one when less than a minute of it is left."""
        now = self._clock.now()
        if not self._token or now >= self._renew_at:
            self._token = sign(self._cluster, self._region, self._credentials())
            self._renew_at = now + _VALID_S - _RENEW_BEFORE_S
        return self._token

    def discard(self) -> None:
        """Sign again next time: the credentials behind the token may have changed."""
        self._token = ""


def sign(cluster: str, region: str, credentials: Credentials) -> str:
    """An EKS token for a cluster; the name is signed as a header, so that the token opens no other cluster."""
    query = urlencode({"Action": "GetCallerIdentity", "Version": "2011-06-15"})
    host = f"sts.{region}.{dns_suffix(region)}"
    request = AWSRequest("GET", f"https://{host}/?{query}", headers={"x-k8s-aws-id": cluster})
    SigV4QueryAuth(credentials, "sts", region, expires=_URL_EXPIRES_S).add_auth(request)
    return _PREFIX + urlsafe_b64encode(str(request.url).encode()).decode().rstrip("=")
