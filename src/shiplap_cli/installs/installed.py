"""State of a cluster that only its install holds: claims, refused offerings, learned capacity, settings.

With it `shiplap plan` and `disrupt` decide on the same inputs as the functions. It is read with the caller's
permissions, before the cluster, as the functions do. A source that may not be read is named, and the rest counts.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
import urllib3

from shiplap.disruption.decision_memory import DecisionMemory
from shiplap.disruption.disruption_snapshot import DisruptionInput
from shiplap.disruption.progress import DisruptionCommand
from shiplap.errors import AwsError, InvalidInput, StoreError, UnknownCluster
from shiplap.flows.planning.decision_inputs import (
    DecisionInputs,
    LaunchSupply,
    NodeClassSupply,
    PricedSnapshot,
    snapshot_of,
)
from shiplap.flows.planning.futile_launches import HeldBackPods, hold_back, may_be_held
from shiplap.flows.planning.moves_under_way import plan_without_moves_under_way
from shiplap.flows.planning.offering_market import unavailable_offerings
from shiplap.flows.policies.ceiling_inputs import view_of_spending
from shiplap.flows.policies.commitment_inputs import commitment_room, used_commitments
from shiplap.flows.policies.policy import DecisionFacts
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.resolved_nodeclass import ResolvedNodeClass
from shiplap.instances.catalog.type_catalog import LearnedCapacity
from shiplap.instances.readiness.joins import BlockedLaunches, JoinHistory, blocked_launches
from shiplap.instances.readiness.nodeclass_status import InstallStatus, known_problem
from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.policies.ceilings.ceiling_input import CeilingInput
from shiplap.policies.ceilings.ceiling_use import cluster_spending
from shiplap.policies.commitments.account_commitments import AccountCommitments
from shiplap.policies.commitments.commitment_input import CommitmentInput, CommitmentsInUse
from shiplap.policies.sleep.sleep_input import SleepInput
from shiplap.policies.sleep.sleep_settings import SleepSettings
from shiplap.policies.sleep.sleep_state import SleepNotes, sleep_state
from shiplap.ports import CapacityStore, DecisionState
from shiplap.scheduling.model.scheduling_plan import Plan, Unschedulable
from shiplap.scheduling.model.snapshot import ClusterView, Snapshot
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
from shiplap_cli.policy_views import views

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
    """One cluster of an install; `None` is what could not be read. `notes` say what, and grow while it is used.

    `claims` are all that are not over, `busy` the nodes and claims that disruption commands have taken.
    """

    cluster: str
    at: float
    notes: list[str]
    capacity: LearnedCapacityView
    settings: ClusterSettings | None = None
    state: DecisionState | None = None
    claims: tuple[NodeClaim, ...] | None = None
    busy: frozenset[str] = frozenset()
    memory: DecisionMemory = DecisionMemory()
    install: DeployedInstall | None = None
    inspected: InstallStatus = InstallStatus()
    joins: JoinHistory = JoinHistory()
    sleep_notes: SleepNotes = SleepNotes()
    policies_read: Mapping[str, Any] = {}
    """What optional features have read, by the name of the feature."""
    commitments: AccountCommitments | None = None

    def snapshot(
        self,
        settings: ClusterSettings,
        view: ClusterView,
        claims: Sequence[NodeClaim],
        supply: LaunchSupply,
        at: float,
    ) -> Snapshot:
        """The snapshot of the schedule function. `claims` count where table `state` could not be read."""
        state = self.state or DecisionState(0, tuple(claims))
        missed = {pod.uid for claim in state.claims if claim.missed for pod in claim.plan.pods if pod.uid}
        barred = blocked_launches(self.joins, _joining_types(state.claims), at)
        if barred != BlockedLaunches():
            names = sorted(barred.amis | {f"{kind} of {ami}" for ami, kind in barred.types})
            self.notes.append(f"nothing is launched of {', '.join(names)}: its nodes do not join")
        inputs = DecisionInputs(at, state, view, state.missed_pods | missed)
        made = snapshot_of(settings, inputs, supply, self.capacity, _NoMetrics())
        facts = DecisionFacts(made, state, supply.catalog, self.joins)
        found = (
            self._sleep(settings, at),
            self._spending(state, claims, at),
            self._commitments(facts),
            *(view.planning_input(settings, self.policies_read.get(name)) for name, view in views()),
        )
        return msgspec.structs.replace(made, policies=tuple(item for item in found if item is not None))

    def decided(self, snapshot: Snapshot) -> tuple[Snapshot, Plan]:
        """The plan of the schedule function, and the snapshot that it is made of.

        Like it, this leaves out pods that nodes were launched for in vain, and launches nothing for the pods of nodes
        whose disruption command waits. Raises InvalidInput as `planner.plan`.
        """
        held = self._held_back(snapshot)
        priced, made = plan_without_moves_under_way(PricedSnapshot(msgspec.structs.replace(snapshot, view=held.view)))
        return priced.snapshot, msgspec.structs.replace(
            made,
            unschedulable=(*made.unschedulable, *held.unschedulable),
            ignored=(*made.ignored, *_expected(snapshot.view, held)),
        )

    def _held_back(self, snapshot: Snapshot) -> HeldBackPods:
        """The view without the pods that no node is launched for now."""
        state, view = self.state, snapshot.view
        if state is None or self.claims is None:
            return HeldBackPods(view)
        if not may_be_held(view, state.claims, state.refused, state.futile):
            return HeldBackPods(view)
        return hold_back(view, self.claims, state.refused, state.futile, snapshot.now)

    def disruption_inputs(self, snapshot: Snapshot) -> tuple[DisruptionInput, ...]:
        """Return the use of commitments for disruption; empty where the install counts on none or a read failed."""
        if self.state is None or self.settings is None or self.settings.commitments is None:
            return ()
        catalog = self.catalog(self.settings.region)
        if catalog is None:
            return ()
        facts = DecisionFacts(snapshot, self.state, catalog, self.joins)
        used = used_commitments(self.settings.commitments, self.commitments, self.settings.name, facts)
        return (CommitmentsInUse(used),)

    def _commitments(self, facts: DecisionFacts) -> CommitmentInput | None:
        """Return the room that commitments of the install leave for new nodes; None where it counts on none."""
        if self.state is None or self.settings is None or self.settings.commitments is None:
            return None
        return CommitmentInput(commitment_room(self.settings.commitments, self.commitments, self.cluster, facts))

    def _sleep(self, settings: ClusterSettings, at: float) -> SleepInput | None:
        """Return the sleep state by the install's settings and by the NodePools that are planned with."""
        known = self.settings
        wanted = None if known is None else known.policy(SleepSettings)
        if known is None or wanted is None or not known.disruption.enabled:
            return None
        return SleepInput(sleep_state(wanted, settings.manifests.node_pools, self.joins, self.sleep_notes, at))

    def _spending(self, state: DecisionState, claims: Sequence[NodeClaim], at: float) -> CeilingInput | None:
        """Return the room that the install's ceilings leave; nodes that ended since the last posting are not seen."""
        if self.settings is None or not self.settings.has_ceilings:
            return None
        spending = cluster_spending(self.claims if self.claims is not None else claims, state.ledger, at)
        return CeilingInput(view_of_spending(self.settings, state, spending))

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


def _expected(view: ClusterView, held: HeldBackPods) -> Iterator[Unschedulable]:
    """Pods that are held back without a reason to wait: a node of theirs is there, or is to come."""
    seen = {pod.key for pod in held.view.pods} | {entry.pod.key for entry in held.unschedulable}
    for pod in sorted((pod for pod in view.pods if pod.key not in seen), key=lambda item: item.key):
        reference = PodReference(pod.metadata.namespace or "default", pod.metadata.name, pod.metadata.uid)
        yield Unschedulable(reference, "a node that was launched for it is there or on its way: it waits for that one")


class _NoMetrics:
    """A Meter that counts nothing."""

    def count(
        self, name: str, value: float = 1.0, unit: str = "Count", *, dimensions: Mapping[str, str] | None = None
    ) -> None:
        """Nothing."""


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
    notes_of_sleep = SleepNotes()
    if mine is not None and mine.policy(SleepSettings) is not None:
        sleep = install.sleep_notes()
        notes_of_sleep = read_or_note(notes, "notes of sleep", _AWAKE, lambda: sleep.read(cluster), SleepNotes())
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
        sleep_notes=notes_of_sleep,
        policies_read=_read_policies(install, mine, now, notes),
        commitments=_read_commitments(install, mine, notes),
    )


def _read_commitments(
    install: DeployedInstall, mine: ClusterSettings | None, notes: list[str]
) -> AccountCommitments | None:
    if mine is None or mine.commitments is None:
        return None
    return read_or_note(notes, "commitments", _LISTED, lambda: install.commitments(mine.region), None)


def _read_policies(
    install: DeployedInstall, mine: ClusterSettings | None, now: float, notes: list[str]
) -> dict[str, Any]:
    """Read what the optional features of a cluster need, by the name of the feature."""
    if mine is None or not mine.policies_on:
        return {}
    from shiplap.aws.policy_adapters import PolicyResources, adapters_of  # noqa: PLC0415 - files need no AWS
    from shiplap.aws.session import client  # noqa: PLC0415 - as above

    tables = install.output("StateTable"), install.output("CapacityTable")
    resources = PolicyResources(client, *tables, install.bucket, mine.region)
    return {
        name: read_or_note(notes, *view.unread, partial(view.read, adapters_of(name, resources), now), None)
        for name, view in views()
        if name in mine.policies_on
    }


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
_AWAKE = "all that would sleep is shown as rehearsed"
_LISTED = "list prices count"
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


def _joining_types(claims: Sequence[NodeClaim]) -> list[tuple[str, str]]:
    return [
        (claim.known_instance.ami, claim.known_instance.type) for claim in claims if claim.state is ClaimState.LAUNCHED
    ]


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
