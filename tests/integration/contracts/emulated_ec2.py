"""The emulated EC2 for tests: one server on loopback, a clock that stands still until it is moved, clients for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config

from shiplap.aws.ec2.ec2_compute import Ec2Compute
from shiplap.manifests.custom_resources import Manifests
from shiplap.settings import ClusterSettings
from shiplap_lab.emulated_ec2 import seed
from shiplap_lab.emulated_ec2.ec2_server import Ec2Emulator
from shiplap_lab.emulated_ec2.regional_prices import Prices

REGION = "us-east-1"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
VERSION = "1.34"
START = 1_700_000_000.0
PRICES = {
    "c7i-flex.large": 0.08479,
    "c7i-flex.xlarge": 0.16958,
    "m5.large": 0.096,
    "m5.xlarge": 0.192,
    "m5.metal": 4.608,
    "m6g.large": 0.077,
    "r5a.8xlarge": 1.808,
}


class Region:
    """The emulator with what tests need to talk to it."""

    def __init__(self, emulator: Ec2Emulator) -> None:
        self.emulator = emulator
        self.control = emulator.control
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """A client that tries each call once."""
        if service not in self._clients:
            self._clients[service] = boto3.client(
                service,
                endpoint_url=self.emulator.url,
                region_name=REGION,
                aws_access_key_id="testing",
                aws_secret_access_key="testing",
                config=Config(retries={"mode": "standard", "total_max_attempts": 1}, parameter_validation=True),
            )
        return self._clients[service]

    def empty(self) -> None:
        """As new, and the clock back at the start."""
        self.control.reset()

    def seed(self, cluster: str, alias: str = "al2023@latest", *, block: int = 0) -> seed.ClusterVpc:
        """A network for a cluster and the images of an alias."""
        seed.register_images(self.control, seed.release_images(alias, VERSION))
        return seed.create_network(self.client("ec2"), cluster, ZONES, block=block)

    def compute(
        self, cluster: str = "demo", install: str = "shiplap", manifests: Manifests | None = None
    ) -> Ec2Compute:
        """The adapter for a cluster whose control plane is known from the settings, with a profile for `node-role`."""
        seed.name_profile(self.client("ssm"), install, cluster, "node-role", f"{install}-{cluster}-nodes")
        settings = ClusterSettings(
            name=cluster,
            region=REGION,
            install=install,
            endpoint="https://demo.example",
            certificate_authority="Q0E=",
            kubernetes_version=VERSION,
            service_cidr="10.100.0.0/16",
            manifests=manifests or Manifests(),
        )
        return Ec2Compute(
            settings,
            ec2=self.client("ec2"),
            ssm=lambda: self.client("ssm"),
            eks=lambda: self.client("eks"),
            clock=self.emulator.behaviour.now,
        )

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


@contextmanager
def emulated_region() -> Iterator[Region]:
    """A running emulator; slow to start (moto's EC2 is large), so worth sharing by the tests of a module."""
    with Ec2Emulator(region=REGION, prices=Prices(PRICES), clock=lambda: START) as emulator:
        region = Region(emulator)
        try:
            yield region
        finally:
            region.close()
