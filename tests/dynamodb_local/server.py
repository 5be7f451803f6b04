"""Amazon's DynamoDB Local: a process on loopback that keeps its tables in memory.

`python -m tests.dynamodb_local.server` copies it from Maven into build/, once for each version of the pom. Nothing but
that command, and so `make dynamodb-local`, ever does: tests that need it are skipped where it is missing.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2s
from pathlib import Path
from typing import Any

import botocore.session

from shiplap.aws.session import config
from shiplap_lab.emulated_aws.processes import Process

POM = Path(__file__).resolve().parent / "pom.xml"
CACHE = POM.parents[2] / "build" / "dynamodb-local"
REGION = "eu-west-1"
_MAIN = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"
_START_S = 60.0
_BUILD_S = 600.0


class DynamoDbMissing(Exception):
    """Gives the reason why DynamoDB Local is missing here, in words for the person who wants to run it."""


def find() -> Path:
    """The folder with its libraries. Raises DynamoDbMissing."""
    if shutil.which("java") is None:
        raise DynamoDbMissing("there is no Java; version 17 or newer runs DynamoDB Local")
    folder = CACHE / blake2s(POM.read_bytes(), digest_size=6).hexdigest()
    if not (folder / "complete").exists():
        raise DynamoDbMissing("DynamoDB Local is not there; `make dynamodb-local` copies it from Maven")
    return folder


def build() -> Path:
    """Copy it from Maven unless it is there. Raises DynamoDbMissing: no Java, no Maven, or Maven does not answer."""
    try:
        return find()
    except DynamoDbMissing:
        if shutil.which("java") is None or shutil.which("mvn") is None:
            raise DynamoDbMissing("there is no Java with Maven; Debian has both: `apt-get install maven`") from None
    folder = CACHE / blake2s(POM.read_bytes(), digest_size=6).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    goal = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    copied = subprocess.run(goal, capture_output=True, text=True, timeout=_BUILD_S, check=False)  # noqa: S603 - our own
    if copied.returncode:
        raise DynamoDbMissing(f"Maven copies nothing: {(copied.stdout + copied.stderr)[-500:]}")
    (folder / "complete").touch()
    return folder


class DynamoDbLocal:
    """A running server; a context manager that ends it. Raises DynamoDbMissing when it is entered, ShiplapError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._client: Any = None

    def __enter__(self) -> DynamoDbLocal:
        libraries, port = find(), _free_port()
        options = ["-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(port)]
        java = ["java", "-Xmx512m", f"-Djava.library.path={libraries}", "-cp", f"{libraries}/*", _MAIN, *options]
        # It lives for minutes: what a second compiler and a parallel collector cost would never come back.
        java[1:1] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        log = self._folder / "dynamodb-local.log"
        self._process = Process(java, log=log, environment=os.environ, folder=self._folder)
        try:
            self._await(port)
        except BaseException:
            self._process.stop()
            raise
        self._client = botocore.session.Session().create_client(
            "dynamodb",
            region_name=REGION,
            endpoint_url=f"http://127.0.0.1:{port}",
            aws_access_key_id="local",
            aws_secret_access_key="local",
            config=config(),
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def _await(self, port: int) -> None:
        ends_at = time.monotonic() + _START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                if self._process.ended or time.monotonic() > ends_at:
                    raise self._process.failure("DynamoDB Local") from None
                time.sleep(0.1)
            else:
                return

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A client of an account without tables; those made inside are deleted at the end."""
        try:
            yield self._client
        finally:
            for name in self._client.list_tables()["TableNames"]:
                self._client.delete_table(TableName=name)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> int:
    """Print the folder; exit code 3 and the reason where it cannot be had."""
    try:
        sys.stdout.write(f"{build()}\n")
    except DynamoDbMissing as missing:
        sys.stderr.write(f"no DynamoDB Local: {missing}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
