"""Tokens for EKS: their form, their signature and how long they are kept."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode
from hashlib import sha256
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.credentials import Credentials

from shiplap.cluster.eks_token import EksToken, sign
from shiplap_lab.fakes.signals import FakeClock

CREDENTIALS = Credentials("AKIDEXAMPLE", "secret", "session")


def url_of(token: str) -> str:
    assert token.startswith("k8s-aws-v1.")
    text = token.removeprefix("k8s-aws-v1.")
    assert "=" not in text
    return urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


def test_a_token_is_a_presigned_request_bound_to_the_cluster() -> None:
    parts = urlsplit(url_of(sign("prod", "eu-west-1", CREDENTIALS)))
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    assert (parts.scheme, parts.netloc, parts.path) == ("https", "sts.eu-west-1.amazonaws.com", "/")
    assert (query["Action"], query["Version"]) == ("GetCallerIdentity", "2011-06-15")
    assert query["X-Amz-SignedHeaders"] == "host;x-k8s-aws-id"
    assert query["X-Amz-Expires"] == "60"
    assert query["X-Amz-Security-Token"] == "session"
    assert query["X-Amz-Credential"].startswith("AKIDEXAMPLE/")
    assert query["X-Amz-Credential"].endswith("/eu-west-1/sts/aws4_request")


def test_the_signature_is_what_the_service_computes_from_url_and_header() -> None:
    parts = urlsplit(url_of(sign("prod", "eu-west-1", CREDENTIALS)))
    unsigned, _, signature = parts.query.partition("&X-Amz-Signature=")
    date = parse_qs(parts.query)["X-Amz-Date"][0]

    def expected(cluster: str) -> str:
        empty = sha256(b"").hexdigest()
        headers = f"host:{parts.netloc}\nx-k8s-aws-id:{cluster}\n"
        canonical = f"GET\n/\n{'&'.join(sorted(unsigned.split('&')))}\n{headers}\nhost;x-k8s-aws-id\n{empty}"
        scope = f"{date[:8]}/eu-west-1/sts/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        key = b"AWS4secret"
        for part in (*scope.split("/"), text):
            key = hmac.digest(key, part.encode(), "sha256")
        return key.hex()

    assert signature == expected("prod")
    assert signature != expected("other")


@pytest.mark.parametrize(
    ("region", "domain"),
    [
        ("us-gov-west-1", "amazonaws.com"),
        ("cn-north-1", "amazonaws.com.cn"),
        ("us-iso-east-1", "c2s.ic.gov"),
        ("us-isob-east-1", "sc2s.sgov.gov"),
        ("eusc-de-east-1", "amazonaws.eu"),
    ],
)
def test_each_partition_has_its_own_domain(region: str, domain: str) -> None:
    parts = urlsplit(url_of(sign("c", region, CREDENTIALS)))

    assert parts.netloc == f"sts.{region}.{domain}"
    assert parse_qs(parts.query)["X-Amz-Credential"][0].endswith(f"/{region}/sts/aws4_request")


def test_a_token_is_kept_for_fourteen_minutes() -> None:
    clock = FakeClock()
    asked = []

    def credentials() -> Credentials:
        asked.append(clock.now())
        return Credentials(f"AKID{len(asked)}", "secret")

    source = EksToken("prod", "eu-west-1", credentials, clock)
    first = source.token()
    clock.advance(14 * 60 - 1)
    assert source.token() == first
    clock.advance(1)
    second = source.token()
    assert second != first
    source.discard()
    assert source.token() not in (first, second)
    assert len(asked) == 3
