"""A real API server for those contracts that have one, tests marked `e2e`; and Amazon's DynamoDB Local."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from shiplap.aws.dynamodb.tables import STATE
from shiplap_lab.api_server.api_resources import RESOURCES
from tests.dynamodb_local.server import DynamoDbLocal, DynamoDbMissing
from tests.e2e import programs
from tests.e2e.api import RealApi, api_of
from tests.e2e.control_plane import ControlPlane
from tests.e2e.dry_runs import DryRuns, definition_of
from tests.integration.contracts.cluster_objects import RBAC
from tests.integration.contracts.in_process_aws import REGION, aws_in_process, create_table, make_client

CONTROLLERS = ("disruption-controller",)
"""Nothing but what counts for PodDisruptionBudgets: no controller may meddle with what a test has arranged."""


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server without a scheduler and without nodes that live."""
    try:
        programs.find()
    except programs.ProgramsMissing as missing:
        pytest.skip(f"no control plane: {missing}")
    folder = tmp_path_factory.mktemp("plane")
    with ControlPlane(folder, scheduler=False, controllers=CONTROLLERS, nodes=False) as running, api_of(running) as api:
        api.make_default_account("default")
        for document in (item for path in RBAC for item in yaml.safe_load_all(path.read_text())):
            api.apply(document)
        with DryRuns(running) as definitions:  # upstream's CRDs
            definitions.install(definition_of(RESOURCES["provisioningrequests"]))
            yield running


@pytest.fixture
def real_api(plane: ControlPlane) -> Iterator[RealApi]:
    """The server as tests arrange it, emptied afterwards."""
    with api_of(plane) as api:
        yield api
        api.clean()


@pytest.fixture(scope="module")
def dynamodb() -> Iterator[Any]:
    """A client of moto's DynamoDB with table `state`, for all tests of a module: they empty it."""
    with aws_in_process():
        client = make_client("dynamodb")
        create_table(client, "state", STATE)
        yield client


@pytest.fixture
def s3() -> Iterator[Any]:
    """A client of moto's S3 with an empty bucket named `bucket`."""
    with aws_in_process():
        client = make_client("s3")
        client.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": REGION})
        yield client


@pytest.fixture(scope="session")
def dynamodb_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoDbLocal]:
    """Amazon's own, where `make dynamodb-local` has brought it."""
    try:
        with DynamoDbLocal(tmp_path_factory.mktemp("dynamodb")) as running:
            yield running
    except DynamoDbMissing as missing:
        pytest.skip(str(missing))
