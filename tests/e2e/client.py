"""The product's own client, as the functions connect it, of a control plane."""

from __future__ import annotations

import time

from shiplap.cluster.client import KubernetesClient
from shiplap.cluster.connect import ApiEndpoint, connect
from shiplap.settings import ClusterSettings
from shiplap_lab.fakes.signals import FakeClock
from tests.e2e.control_plane import ControlPlane


def real_client(plane: ControlPlane, user: str, *, token: str = "") -> KubernetesClient:
    """A client that enters as one of the control plane's users, or with another token."""

    def unused(*_: object) -> ApiEndpoint:
        raise AssertionError("endpoint and token are given")

    settings = ClusterSettings(
        name="test",
        region="eu-west-1",
        endpoint=plane.endpoint,
        certificate_authority=plane.certificate_authority,
        token=token or plane.tokens[user],
    )
    return connect(
        settings,
        describe_cluster=unused,
        credentials=unused,
        clock=FakeClock(),
        sleep=time.sleep,
        back_off_s=(0.1, 0.2),
    )
