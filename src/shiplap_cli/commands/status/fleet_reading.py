"""Reads the installs of a fleet side by side. What cannot be read is a problem of its install, and hides no other.

An install costs six requests, and each cluster the claims of table `state`: nine requests for a small one. No cluster's
API server is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError
from botocore.loaders import create_loader
from botocore.session import Session

from shiplap.aws.bucket import BucketStatus
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.aws.failures import FAILURES
from shiplap.aws.session import config
from shiplap.errors import AwsError, InvalidInput, ShiplapError
from shiplap.instances.readiness.nodeclass_status import ClusterStatus
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.files.described_installs import DescribedInstall
from shiplap.ports import INSTALL_DIMENSION, METRICS_NAMESPACE
from shiplap_cli.commands.status.fleet_document import ClusterOverview, InstallOverview, cluster_overview
from shiplap_cli.hints import with_hint
from shiplap_cli.installs.find_install import install_name
from shiplap_cli.installs.releases import library_layer
from shiplap_cli.installs.ringing_alarms import ringing_alarms

AT_ONCE = 32
"""Requests under way at once, over all installs."""

_SERVICES = ("cloudformation", "s3", "dynamodb", "cloudwatch", "lambda")
_WINDOW_S = 300
_MINUTE_S = 60
_WAITING = "PodsWaiting"


class InstallClients(NamedTuple):
    """Clients of one profile in one Region."""

    cloudformation: Any
    s3: Any
    dynamodb: Any
    cloudwatch: Any
    functions: Any


ClientsOf = Callable[[DescribedInstall], InstallClients]


class AwsClients:
    """Makes the clients of installs; those of the same profile and Region share them.

    It is used by one thread: a session must not make clients in two.
    """

    def __init__(self) -> None:
        self._loader = create_loader()  # keeps the models of services, which every session would read anew
        self._known: dict[tuple[str, str], InstallClients] = {}

    def of(self, install: DescribedInstall) -> InstallClients:
        """Clients of an install. Raises AwsError: its profile cannot be used."""
        key = (install.profile, install.region)
        if key not in self._known:
            try:
                session = Session(profile=install.profile or None)
                session.register_component("data_loader", self._loader)
                made = (session.create_client(name, region_name=install.region, config=config()) for name in _SERVICES)
                self._known[key] = InstallClients(*made)
            except BotoCoreError as error:
                raise AwsError(f"AWS cannot be asked: {error}", code=type(error).__name__) from error
        return self._known[key]


def read_fleet(
    installs: Sequence[DescribedInstall],
    clients_of: ClientsOf,
    now: float,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[InstallOverview, ...]:
    """Every install, in the given order.

    Args:
        installs: where they are.
        clients_of: raises AwsError.
        now: epoch seconds.
        say: is told how far the reading is.
    """
    with ThreadPoolExecutor(AT_ONCE) as looks, ThreadPoolExecutor(AT_ONCE) as clusters:
        waiting: list[Future[InstallOverview] | InstallOverview] = []
        for install in installs:
            try:
                reader = _InstallReader(install, clients_of(install), clusters, now)
            except AwsError as error:
                waiting.append(_unread(install, error))
            else:
                waiting.append(looks.submit(reader.overview))
        found = []
        for number, item in enumerate(waiting):
            say(f"{number} of {len(installs)} installs")
            found.append(item if isinstance(item, InstallOverview) else item.result())
    return tuple(found)


def _unread(install: DescribedInstall, error: ShiplapError) -> InstallOverview:
    return _overview(install, problems=(with_hint(error),))


def _overview(install: DescribedInstall, **known: Any) -> InstallOverview:
    return InstallOverview(
        install=install.name,
        profile=install.profile,
        account=install.account,
        region=install.region,
        stack=install.stack,
        **known,
    )


class _InstallReader:
    """One install. Its clusters are read by another pool of threads than the one that waits for them."""

    def __init__(
        self, install: DescribedInstall, clients: InstallClients, clusters: ThreadPoolExecutor, now: float
    ) -> None:
        self._install, self._clients, self._clusters, self._now = install, clients, clusters, now
        self._problems: list[str] = []

    def overview(self) -> InstallOverview:
        """Everything that may be read of it."""
        try:
            outputs = self._outputs()
            state = DynamoState(self._clients.dynamodb, outputs["StateTable"])
            known = BucketStatus(self._clients.s3, outputs["Bucket"]).load().clusters
        except ShiplapError as error:
            return _unread(self._install, error)
        name = install_name(outputs)
        names = [item.cluster for item in known]
        reads = [self._clusters.submit(self._cluster_claims, state, item.cluster) for item in known]
        waiting = self._attempt("pods that wait", partial(self._waiting, name, names), {})
        frozen_at = self._attempt("whether launches are frozen", state.frozen_at, 0.0)
        if frozen_at:
            self._problems.append(f"launches are frozen since {rfc3339(frozen_at)}")
        self._problems += self._attempt("alarms", partial(self._alarms, name), [])
        version, release = self._attempt("versions", partial(self._versions, outputs), ("", ""))
        if not known:
            self._problems.append("nothing is known of its clusters: the first inspection has not ended")
        clusters = [self._of_cluster(item, read, waiting) for item, read in zip(known, reads, strict=True)]
        return _overview(
            self._install,
            version=version,
            release=release,
            waiting=waiting.get("", 0) if waiting else None,
            clusters=tuple(clusters),
            problems=tuple(self._problems),
        )

    def _attempt(self, what: str, read: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return read()
        except FAILURES as error:
            self._problems.append(f"not seen: {what}: {with_hint(AwsError(str(error), code=_code_of(error)))}")
        except ShiplapError as error:
            self._problems.append(f"not seen: {what}: {with_hint(error)}")
        return otherwise

    def _cluster_claims(self, state: DynamoState, cluster: str) -> Any:
        """The claims, or the error that kept them from being read."""
        try:
            return state.claims(cluster)
        except ShiplapError as error:
            return error

    def _of_cluster(self, known: ClusterStatus, read: Future[Any], waiting: Mapping[str, int]) -> ClusterOverview:
        claims = read.result()
        if isinstance(claims, ShiplapError):
            problem = f"not seen: its claims: {with_hint(claims)}"
            return ClusterOverview(cluster=known.cluster, region=known.region, problems=(problem,))
        return cluster_overview(known, claims, waiting.get(known.cluster), self._now)

    def _outputs(self) -> dict[str, str]:
        """Raises AwsError, InvalidInput."""
        stack = self._install.stack
        try:
            (described,) = self._clients.cloudformation.describe_stacks(StackName=stack)["Stacks"]
        except FAILURES as error:
            if isinstance(error, ClientError) and "does not exist" in str(error):
                raise InvalidInput("stack", f"there is no stack {stack}") from error
            raise AwsError(f"could not look up stack {stack}: {error}", code=_code_of(error)) from error
        outputs = {item["OutputKey"]: item["OutputValue"] for item in described.get("Outputs", ())}
        if not {"Bucket", "StateTable"} <= outputs.keys():
            raise InvalidInput("stack", f"stack {stack} has no outputs Bucket and StateTable: it is not Shiplap's")
        return outputs

    def _waiting(self, name: str, clusters: Sequence[str]) -> dict[str, int]:
        """Pods that wait: of all clusters under the empty name, and of those that have metrics of their own."""
        if not name:
            return {}
        own = [{"Name": INSTALL_DIMENSION, "Value": name}]
        wanted = [("", own), *((cluster, [*own, {"Name": "cluster", "Value": cluster}]) for cluster in clusters[:499])]
        queries = [
            {
                "Id": f"m{number}",
                "MetricStat": {
                    "Metric": {"Namespace": METRICS_NAMESPACE, "MetricName": _WAITING, "Dimensions": dimensions},
                    "Period": _MINUTE_S,
                    "Stat": "Sum" if not cluster else "Maximum",
                },
            }
            for number, (cluster, dimensions) in enumerate(wanted)
        ]
        answer = self._clients.cloudwatch.get_metric_data(
            MetricDataQueries=queries,
            StartTime=datetime.fromtimestamp(self._now - _WINDOW_S, UTC),
            EndTime=datetime.fromtimestamp(self._now, UTC),
        )
        newest = {item["Id"]: item["Values"][0] for item in answer.get("MetricDataResults", ()) if item.get("Values")}
        found = {cluster: int(newest[f"m{n}"]) for n, (cluster, _) in enumerate(wanted) if f"m{n}" in newest}
        return {"": 0, **found}

    def _alarms(self, name: str) -> list[str]:
        if not name:
            return []
        clients, stack = self._clients, self._install.stack
        return [f"alarm {alarm}" for alarm in ringing_alarms(clients.cloudformation, clients.cloudwatch, stack, name)]

    def _versions(self, outputs: Mapping[str, str]) -> tuple[str, str]:
        """Shiplap's version, and the number of the release in service."""
        function = outputs.get("ScheduleFunction", "")
        if not function:
            return "", ""
        functions = self._clients.functions
        deployed = functions.get_function_configuration(FunctionName=function, Qualifier="live")
        for layer in deployed.get("Layers", ()):
            if "ibrary" not in layer["Arn"]:
                continue
            described = functions.get_layer_version_by_arn(Arn=layer["Arn"])
            library = library_layer(layer["Arn"], described.get("Description", ""))
            if library is not None:
                return library.shiplap, str(deployed["Version"])
        return "", str(deployed["Version"])


def _code_of(error: Exception) -> str:
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    return type(error).__name__
