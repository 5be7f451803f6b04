"""State of a cluster that only its install holds: claims, refused offerings, learned capacity, settings.

With it `shiplap plan` and `disrupt` decide on the same inputs as the functions. It is read with the caller's
permissions, before the cluster, as the functions do. A source that may not be read is named, and the rest counts.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import urllib3

from shiplap.disruption.decision_memory import DecisionMemory
from shiplap.disruption.progress import DisruptionCommand
from shiplap.errors import AwsError, InvalidInput, StoreError, UnknownCluster
from shiplap.flows.planning.decision_inputs import (
    LaunchSupply,
    NodeClassSupply,
)
from shiplap.flows.planning.offering_market import unavailable_offerings
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.resolved_nodeclass import ResolvedNodeClass
from shiplap.instances.catalog.type_catalog import LearnedCapacity
from shiplap.instances.readiness.joins import JoinHistory
from shiplap.instances.readiness.nodeclass_status import InstallStatus, known_problem
from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap.manifests.live.live_manifests import LiveManifests
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import CapacityStore, DecisionState
from shiplap.settings import ClusterSettings, Settings
from shiplap_cli.hints import with_hint
from shiplap_cli.installs.find_install import (
    STACK,
    DeployedInstall,
    InstallOptions,
    aws_client,
    find_install,
    sole_cluster,
)
from shiplap_cli.output import progress

T = TypeVar("T")


class LearnedCapacityView:
    """Learned capacity as far as it may be read; entries that were `given` take the place of the table's."""

    def __init__(
        self, store: CapacityStore | None, notes: list[str], given: Sequence[LearnedCapacity] | None = None
    ) -> None:
        self._store, self._notes, self._given = store, notes, given

    def given(self, entries: Sequence[LearnedCapacity]) -> LearnedCapacityView:
        """The view with the entries of a file instead of the table's."""
        return LearnedCapacityView(self._store, self._notes, entries)

    def all(self) -> tuple[LearnedCapacity, ...]:
        """The entries of every AMI."""
        store = self._store
        if self._given is not None or store is None:
            return tuple(self._given or ())
        return read_or_note(self._notes, "learned capacity", _UNLEARNED, store.all, ())

    def learned(self, amis: Sequence[str]) -> tuple[LearnedCapacity, ...]:
        """The entries of these AMIs."""
        store = self._store
        if self._given is not None or store is None:
            return tuple(entry for entry in self._given or () if entry.ami in amis)
        return read_or_note(self._notes, "learned capacity", _UNLEARNED, lambda: store.learned(amis), ())

    def pilots(self, amis: Sequence[str], now: float) -> frozenset[str]:
        """Estimates that are being explored."""
        store = self._store
        if store is None:
            return frozenset()
        return read_or_note(self._notes, "learned capacity", _UNLEARNED, lambda: store.pilots(amis, now), frozenset())


class InstalledCluster(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster of an install as it was read, before the cluster itself; `None` is what could not be read."""

    cluster: str

    at: float
    """The time of the look, epoch seconds."""

    notes: list[str]
    """What could not be read, and what follows from it. The list grows while the struct is used."""

    capacity: LearnedCapacityView

    settings: ClusterSettings | None = None
    """The settings in service."""

    state: DecisionState | None = None

    claims: tuple[NodeClaim, ...] | None = None
    """All claims that are not over."""

    busy: frozenset[str] = frozenset()
    """Names of the nodes and claims that disruption commands have taken."""

    memory: DecisionMemory = DecisionMemory()
    """What disruption remembers."""

    install: DeployedInstall | None = None

    inspected: InstallStatus = InstallStatus()
    """The last inspection of EC2NodeClasses."""

    joins: JoinHistory = JoinHistory()

    stored_manifests: LiveManifests = LiveManifests()
    """The manifests that the functions read last, with their ages; empty where manifests are not live."""

    def catalog(self, region: str) -> Catalog | None:
        """The types and prices that the functions decide with; None where they cannot be read."""
        install = self.install
        if install is None:
            return None
        return read_or_note(self.notes, "the install's catalogue", _ASKED, lambda: install.catalog(region), None)

    def supply(
        self,
        catalog: Catalog,
        node_classes: Sequence[EC2NodeClass],
        resolved: Mapping[str, ResolvedNodeClass],
        not_ready: Mapping[str, str],
        shifted: frozenset[str],
    ) -> LaunchSupply:
        """The types on offer, with the last inspection's problems of each EC2NodeClass."""
        supplies = {}
        for node_class in node_classes:
            name = node_class.metadata.name
            problem = known_problem(self.inspected, self.cluster, node_class, self.at) or not_ready.get(name, "")
            supplies[name] = NodeClassSupply(node_class, None if problem else resolved.get(name), problem)
        return LaunchSupply(catalog, supplies, shifted, self.joins)

    def resting(self, catalog: Catalog) -> frozenset[tuple[str, str, str]]:
        """Offerings that EC2 refused lately and that are left alone for now."""
        return unavailable_offerings(self.state.unavailable, catalog) if self.state is not None else frozenset()


_UNLEARNED = "estimates count instead"


def read_or_note(notes: list[str], what: str, consequence: str, read: Callable[[], T], otherwise: T) -> T:
    """The result of `read`; where reading is refused, `otherwise` and a note."""
    try:
        return read()
    except (AwsError, StoreError) as error:
        note = f"not seen: {what}, so {consequence}: {with_hint(error)}"
        if note not in notes:
            notes.append(note)
        return otherwise


def read_installed_cluster(which: InstallOptions, now: float) -> InstalledCluster:
    """The install and cluster that the options name, as far as they may be read.

    Raises:
        InvalidInput: there is no such install or cluster, or the install serves several and none is named.
    """
    notes: list[str] = []
    with progress("reading the install's tables"):
        found = read_or_note(notes, "the install", _INSTALL_UNKNOWN, lambda: _find_cluster(which), None)
        if found is None:
            return InstalledCluster(
                cluster=which.cluster, at=now, notes=notes, capacity=LearnedCapacityView(None, notes)
            )
        return _read_install(*found, now, notes)


def _find_cluster(which: InstallOptions) -> tuple[DeployedInstall, str]:
    install = find_install(bucket="", stack=which.stack or STACK, dev=which.dev)
    return install, which.cluster or sole_cluster(install)


def _read_install(install: DeployedInstall, cluster: str, now: float, notes: list[str]) -> InstalledCluster:
    from shiplap.aws.bucket import BucketMemory  # noqa: PLC0415 - files need no AWS
    from shiplap.aws.session import client  # noqa: PLC0415 - as above

    state, memory = install.state(), BucketMemory(client("s3"), install.bucket)
    settings = read_or_note(notes, "the settings of the install", _BY_OPTIONS, lambda: settings_of(install), None)
    mine = _settings_of(settings, cluster) if settings is not None else None
    # The epoch and the state before the cluster, as the functions do: what leaves the one for the other is seen.
    table = install.output("StateTable")
    decision = read_or_note(notes, f"table {table}", _BY_NODES, lambda: state.read(cluster, now), None)
    claims, busy = None, frozenset[str]()
    if decision is not None:
        claims = read_or_note(notes, f"claims of {cluster}", _BY_NODES, lambda: state.claims(cluster), None)
        under_way = read_or_note(
            notes, f"commands of {cluster}", "nodes may go twice", lambda: state.commands(cluster), _NO_COMMANDS
        )
        busy = busy.union(*(command.busy for command in under_way))
    joins = install.joins()
    stored = LiveManifests()
    if mine is not None and mine.live_manifests:
        manifests = install.manifests()
        stored = read_or_note(notes, "manifests read last", _YOUNG, lambda: manifests.load(cluster), stored)
    return InstalledCluster(
        cluster=cluster,
        at=now,
        notes=notes,
        capacity=LearnedCapacityView(install.capacity(), notes),
        settings=mine,
        state=decision,
        claims=claims,
        busy=busy,
        memory=read_or_note(notes, f"memory of {cluster}", _FORGOT, lambda: memory.load(cluster), DecisionMemory()),
        install=install,
        inspected=read_or_note(notes, "statuses", "AWS is asked", install.inspected, InstallStatus()),
        joins=read_or_note(notes, "how nodes join", "none are kept off", lambda: joins.read(cluster), JoinHistory()),
        stored_manifests=stored,
    )


def shifted_zones(installed: InstalledCluster, region: str) -> frozenset[str]:
    """Ids of the zones that ARC has shifted the cluster's traffic away from."""
    from shiplap.aws.health import Ec2Health  # noqa: PLC0415 - files need no AWS
    from shiplap.aws.session import client  # noqa: PLC0415 - as above

    health = Ec2Health(
        installed.cluster,
        ec2=client("ec2", region),
        eks=lambda: client("eks", region),
        zonal_shift=lambda: client("arc-zonal-shift", region),
        clock=lambda: installed.at,
    )
    return read_or_note(installed.notes, "zonal shifts", "no zone is kept out of", health.shifted_zones, frozenset())


_NO_COMMANDS: tuple[DisruptionCommand, ...] = ()
_INSTALL_UNKNOWN = "claims on their way, learned capacity and the install's settings do not count"
_BY_OPTIONS = "those of the options count"
_BY_NODES = "only NodeClaims and Nodes of the cluster tell what is on its way"
_YOUNG = "no node drifts by their specs yet"
_FORGOT = "nodes count as changed just now"
_ASKED = "types and prices are asked for"


def cluster_settings_of(install: DeployedInstall, cluster: str) -> ClusterSettings:
    """The settings of a cluster. Raises AwsError, InvalidInput: the install does not serve it."""
    return _settings_of(settings_of(install), cluster)


def _settings_of(settings: Settings, cluster: str) -> ClusterSettings:
    try:
        return settings.cluster(cluster)
    except UnknownCluster as error:
        served = ", ".join(item.name for item in settings.clusters)
        raise InvalidInput("--cluster", f"the install serves {served or 'no cluster'}, not {cluster}") from error


_DOCUMENT = "python/shiplap_settings/settings.json"
_ALIAS = "live"
_DECODER = msgspec.json.Decoder(Settings)


def settings_of(install: DeployedInstall) -> Settings:
    """The settings that the schedule function in service was deployed with.

    Raises:
        AwsError: Lambda does not tell, or no layer holds settings that this version can read.
        InvalidInput: the install's functions are not known.
    """
    function = install.output("ScheduleFunction")
    from shiplap.aws.ec2_errors import aws_errors  # noqa: PLC0415 - botocore is loaded only where AWS is asked

    with aws_errors(f"look up the layers of {function}"):
        client = aws_client("lambda")
        answer = client.get_function_configuration(FunctionName=function, Qualifier=_ALIAS)
    return settings_in_layers(client, function, answer.get("Layers", ()))


def settings_in_layers(client: Any, function: str, layers: Sequence[Mapping[str, Any]]) -> Settings:
    """The settings in the layers of a function, as Lambda describes those. Raises AwsError, as `settings_of`."""
    from shiplap.aws.ec2_errors import aws_errors  # noqa: PLC0415 - as above

    # The settings are by far the smallest layer.
    for layer in sorted(layers, key=lambda item: (int(item.get("CodeSize", 0)), str(item["Arn"]))):
        with aws_errors(f"look up layer {layer['Arn']}"):
            version = client.get_layer_version_by_arn(Arn=layer["Arn"])
        document = _document(_content(version))
        if document is not None:
            return _decoded(document)
    raise AwsError(f"function {function} has no layer with settings")


def _content(version: Mapping[str, Any]) -> bytes:
    where = str(version["Content"]["Location"])
    try:
        answer = urllib3.request("GET", where, timeout=urllib3.Timeout(connect=3, read=15), retries=2)
    except urllib3.exceptions.HTTPError as error:
        raise AwsError(f"the settings layer could not be fetched: {error}") from error
    if answer.status != 200:
        raise AwsError(f"the settings layer could not be fetched: HTTP {answer.status}")
    return answer.data


def _document(archive: bytes) -> bytes | None:
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            return opened.read(_DOCUMENT) if _DOCUMENT in opened.namelist() else None
    except zipfile.BadZipFile as error:
        raise AwsError(f"a layer is no zip archive: {error}") from error


def _decoded(document: bytes) -> Settings:
    try:
        return _DECODER.decode(document)
    except msgspec.DecodeError as error:
        raise AwsError(f"the install's settings are of a version that this one cannot read: {error}") from error
