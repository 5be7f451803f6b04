"""The disrupt flow: every minute, or sooner after a find, each command takes its next step, and what should go now and
has been seen to twice is begun.

A command and its replacements are written together through the epoch; its replacements are launched by the schedule
function like any claim whose owner has gone, and its nodes are emptied by the lifecycle function. This flow only moves
records and taints, so that it needs no right to launch or to terminate anything.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from shiplap.disruption.commands import Decision, DisruptionProposal, Method, Reason
from shiplap.disruption.decide import decide
from shiplap.disruption.decision_memory import SECOND_LOOK_S, confirmed
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.disruption.node_history import observe_nodes, with_drift, with_moves, with_undone
from shiplap.disruption.progress import (
    READY_S,
    CommandChanges,
    CommandState,
    CommandStep,
    DisruptionCommand,
    fields_without,
    next_step,
    reconsider_step,
)
from shiplap.errors import ClusterError, ConditionFailed, EpochMoved, ObjectNotFound, ShiplapError
from shiplap.flows import claim_events, cluster_metrics
from shiplap.flows.claim_updates import DISRUPTION, DRAIN, NO_CLAIM, facts, grace_ends_at
from shiplap.flows.context import FlowContext
from shiplap.flows.disrupt.renew_hashes import renew_hashes
from shiplap.flows.disrupt.second_look import objections, still_valid
from shiplap.flows.lifecycle.drain import cordon, is_cordoned, uncordon
from shiplap.flows.live_settings import AS_DEPLOYED, ManifestState
from shiplap.flows.optional.optional_calls import RECORDS
from shiplap.flows.planning.decision_inputs import BoundPods, DecisionInputs, read_inputs, read_supply
from shiplap.flows.planning.decision_snapshots import ServiceInputs, disruption_of_install, priced_snapshot
from shiplap.flows.planning.futile_launches import record_refusals
from shiplap.flows.planning.planned_launches import ClaimOrigin, launches, records_of, with_token
from shiplap.flows.pod_events import publish_on_node
from shiplap.flows.policies.active import ActivePolicies
from shiplap.flows.policies.policy import Launches
from shiplap.garbage_collection import garbage_collection_paused
from shiplap.kubernetes.names import claim_name
from shiplap.manifests.nodeclaim import ClaimChanges, ClaimState, NodeClaim
from shiplap.ports import MemoryStore
from shiplap.scheduling.model.planned_pods import may_be_of, pair
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

Decide = Callable[[DisruptionSnapshot], Decision]

CORDONED_S = 5.0
"""How long after nodes were cordoned their pods are looked at again, in seconds: pods may have been bound meanwhile."""


class DisruptionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one invocation, by the names of commands; `proposed` counts what awaits a second look."""

    begun: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    proposed: int = 0
    blocked: int = 0


def disrupt(
    settings: ClusterSettings,
    context: FlowContext,
    memory: MemoryStore,
    *,
    decision_of: Decide = decide,
    manifest_state: ManifestState = AS_DEPLOYED,
    bound_pods: BoundPods | None = None,
) -> DisruptionReport:
    """Look at one cluster's nodes.

    Args:
        settings: the cluster.
        context: the ports.
        memory: what was remembered of its nodes.
        decision_of: `decide`, or a `LastDecision` of this cluster, which knows the same without deciding anew.
        manifest_state: what was found out about the cluster's manifests.
        bound_pods: what the process knows of the cluster's pods.

    Raises:
        ClusterError, StoreError, AwsError: nothing is half done that the next minute does not finish.
    """
    # Its objects are looked at from reading to deciding; until they are gone again there is nothing to collect.
    with garbage_collection_paused():
        return _Round(settings, manifest_state, context, memory, decision_of, bound_pods).run()


class _Round:
    def __init__(
        self,
        settings: ClusterSettings,
        manifest_state: ManifestState,
        context: FlowContext,
        memory: MemoryStore,
        decision_of: Decide,
        bound_pods: BoundPods | None,
    ) -> None:
        self._settings = settings
        self._manifest_state = manifest_state
        self._context = context
        self._memory = memory
        self._decision_of = decision_of
        self._bound_pods = bound_pods
        # Nodes before claims: a node that was cordoned by then is so for a reason that its claim knows. Commands
        # before claims: the replacements of a command are written with it.
        nodes = context.cluster.nodes()
        self._commands = context.state.commands(settings.name)
        self._claims = {claim.name: claim for claim in context.state.claims(settings.name)}
        paired, _ = pair(nodes, tuple(self._claims.values()))
        self._nodes = {node.metadata.name: node for node in nodes if node.metadata.name in paired}
        self._policies = ActivePolicies.of(settings, context)
        self._ready_s = max(READY_S, float(settings.join_timeout_s))
        self._given_up: set[str] = set()
        self._ended: dict[CommandState, list[str]] = {CommandState.DONE: [], CommandState.UNDONE: []}
        self._again_in_s = 0.0
        if manifest_state.unsettled_pools:
            self._again_in_s = max(1.0, manifest_state.settles_at - context.clock.now() + 1)

    def run(self) -> DisruptionReport:
        cluster_metrics.measure_nodes(self._settings.name, self._claims.values(), self._context)
        if self._settings.paused:
            self._context.meter.count("InvocationsPaused")
            _LOG.info("paused", extra={"cluster": self._settings.name})
            return DisruptionReport()
        if self._manifest_state.suspended:
            return DisruptionReport()
        under_way = self._advance(self._commands)
        self._uncordon_nodes_of_no_command(under_way)
        self._remove_leftover_taints(under_way)
        in_service = any(claim.state is ClaimState.INITIALIZED for claim in self._claims.values())
        if self._settings.disruption.enabled and in_service:
            decision, begun, proposed = self._decide()
        else:
            decision, begun, proposed = Decision(), [], 0
        if self._again_in_s:
            self._context.set_timer(self._settings.name, NO_CLAIM, DISRUPTION, self._again_in_s)
        report = DisruptionReport(
            begun=tuple(begun),
            done=tuple(self._ended[CommandState.DONE]),
            undone=tuple(self._ended[CommandState.UNDONE]),
            proposed=proposed,
            blocked=len(decision.blocked),
        )
        if report.blocked:
            self._context.meter.count(
                "NodesNotDisruptable", report.blocked, dimensions=cluster_metrics.of_cluster(self._settings.name)
            )
        if decision.overdue:
            self._context.meter.count(
                "NodesOverdue", len(decision.overdue), dimensions=cluster_metrics.of_cluster(self._settings.name)
            )
            kept = {item.node: item.reason for item in decision.blocked if item.node in decision.overdue}
            _LOG.warning("expired nodes stay", extra={"cluster": self._settings.name, "nodes": kept})
        busy = report.begun or report.done or report.undone or report.proposed
        _LOG.log(
            logging.INFO if busy else logging.DEBUG,
            "disruption",
            extra={"cluster": self._settings.name, "report": msgspec.to_builtins(report)},
        )
        return report

    # What was begun before

    def _advance(self, commands: Sequence[DisruptionCommand]) -> list[DisruptionCommand]:
        """One step for each command; those that are not over then."""
        left = []
        for command in commands:
            try:
                after = self._step(command)
            except (ConditionFailed, ClusterError) as error:  # others' turn, or the next minute's
                self._context.meter.count("CommandStepsFailed")
                _LOG.warning("command takes no step: %s", error, extra=_facts(command))
                left.append(command)
                continue
            if after.state in self._ended:
                self._ended[after.state].append(after.name)
                self._given_up.update(after.nodes if after.state is CommandState.UNDONE else ())
            else:
                left.append(after)
        return left

    def _step(self, command: DisruptionCommand) -> DisruptionCommand:
        if command.newer:
            return command
        now = self._context.clock.now()
        step = self._second_look(command, next_step(command, self._claims, now, self._ready_s), now)
        for name, to in step.moves:
            self._move(self._claims[name], to, str(command.reason), now)
        if step.to is not CommandState.UNDONE:
            self._cordon_targets(command)
        if step.to is command.state and not step.spared:
            return command
        less = fields_without(command, step.spared, self._claims) if step.spared else CommandChanges()
        changes: CommandChanges = {**less, "changed_at": now, "failure": step.why}
        after = self._context.state.advance_command(command, step.to, **changes)
        if after.state is not command.state:
            self._count_step(after)
        level = logging.WARNING if after.state is CommandState.UNDONE else logging.INFO
        _LOG.log(level, "command is %s %s", after.state, step.why, extra=_facts(after))
        return after

    def _second_look(self, command: DisruptionCommand, step: CommandStep, now: float) -> CommandStep:
        """A step that begins to remove nodes waits until they are cordoned, and is taken if nothing speaks against it.

        Where something else takes the taint away again and again, nodes are emptied as they are: that cordons them.
        """
        if step.to is not CommandState.REMOVING or command.state is not CommandState.WAITING:
            return step
        going = [self._claims[name] for name, _ in step.moves]
        nodes = [self._nodes[claim.node_name] for claim in going if claim.node_name in self._nodes]
        if not all(map(is_cordoned, nodes)) and now < command.created_at + self._ready_s:
            return CommandStep(CommandState.WAITING)
        against = objections(self._settings, command.reason, going, self._nodes, self._context, self._policies)
        return reconsider_step(command, step, self._claims, against)

    def _move(self, claim: NodeClaim, to: ClaimState, reason: str, now: float) -> None:
        changes: ClaimChanges = {"changed_at": now}
        if to is ClaimState.DRAINING:
            deadline_at = grace_ends_at(claim, self._settings, now) or 0.0
            changes |= {"failure": reason, "deadline_at": deadline_at}
        elif to is ClaimState.INITIALIZED:
            self._uncordon(claim)
            if claim.state is ClaimState.DRAINING:
                changes |= {"failure": "", "deadline_at": 0.0}
        self._claims[claim.name] = self._context.state.advance(claim, to, **changes)
        if to is ClaimState.DRAINING:
            self._context.set_timer(claim.cluster, claim.name, DRAIN, 0)

    def _cordon_targets(self, command: DisruptionCommand) -> None:
        for name in command.targets:
            claim = self._claims.get(name)
            if claim is not None and claim.state is ClaimState.DISRUPTING and claim.node_name in self._nodes:
                cordon(self._nodes[claim.node_name], self._context)

    def _uncordon(self, claim: NodeClaim) -> None:
        try:
            node = self._context.cluster.node(claim.node_name)
            if may_be_of(node, claim):
                uncordon(node, self._context)
                self._nodes.pop(claim.node_name, None)  # as it was read, it still looks cordoned
        except ObjectNotFound:
            _LOG.info("node is gone", extra=facts(claim))

    def _uncordon_nodes_of_no_command(self, under_way: Sequence[DisruptionCommand]) -> None:
        """Return nodes to service that are being disrupted for no command.

        An invocation that was slow between its reads and its writes cordons a node after another one has ended its
        command, or has had the command give it up. Commands are read again: a claim that was read before was disrupted
        for a command that had been written.
        """
        if self._disrupted_for_none(under_way):
            for claim in self._disrupted_for_none(self._context.state.commands(self._settings.name)):
                self._context.meter.count("NodesOfNoCommand")
                _LOG.warning("node is uncordoned: no command disrupts it", extra=facts(claim))
                try:
                    self._move(claim, ClaimState.INITIALIZED, "", self._context.clock.now())
                except (ConditionFailed, ClusterError) as error:  # others' turn, or the next minute's
                    _LOG.warning("node is not uncordoned: %s", error, extra=facts(claim))

    def _disrupted_for_none(self, commands: Sequence[DisruptionCommand]) -> list[NodeClaim]:
        busy = _busy(commands)
        disrupted = (claim for claim in self._claims.values() if claim.state is ClaimState.DISRUPTING)
        return [claim for claim in disrupted if claim.name not in busy]

    def _remove_leftover_taints(self, under_way: Sequence[DisruptionCommand]) -> None:
        """Nodes in service that still carry the taint of a command that is over: whoever undid it died too early."""
        busy = _busy(under_way)
        for claim in self._claims.values():
            node = self._nodes.get(claim.node_name)
            in_service = claim.state is ClaimState.INITIALIZED and not claim.cordoned
            if node is not None and in_service and claim.name not in busy and is_cordoned(node):
                self._context.meter.count("TaintsLeftOver")
                uncordon(node, self._context)

    # What is decided now

    def _decide(self) -> tuple[Decision, list[str], int]:
        remembered = self._memory.load(self._settings.name)
        # An answer remembered from before would take nodes for drifted that were just made of a newer one.
        fresh = any(item.reason is Reason.DRIFTED for item in remembered.proposed)
        inputs = read_inputs(self._settings, self._context, self._bound_pods, policies=self._policies)
        if inputs.state.frozen_at:  # no replacement would be launched
            return Decision(), [], 0
        supply = read_supply(self._settings, self._context, fresh=fresh, policies=self._policies)
        priced = priced_snapshot(self._settings, inputs, supply, self._context, self._policies, replaces=True)
        now = inputs.at
        # After the epoch was read: whatever is begun from now on moves it.
        busy = _busy(self._context.state.commands(self._settings.name))
        claims = self._context.state.claims(self._settings.name)
        claims = renew_hashes(claims, self._settings.manifests.node_pools, priced.snapshot.catalogs, self._context)
        refused = record_refusals(self._settings.name, claims, inputs.view, inputs.state, self._context)
        histories = observe_nodes(remembered.histories, inputs.view, claims, now)
        histories = with_undone(histories, self._given_up, now)
        service = ServiceInputs(
            claims=claims,
            histories=histories,
            refused=refused,
            busy=busy,
            pod_disruption_budgets=self._context.cluster.disruption_budgets(),
            unsettled_pools=self._manifest_state.unsettled_pools,
        )
        snapshot = disruption_of_install(
            priced.snapshot, inputs, supply, service, self._settings.disruption, self._policies
        )
        decision = self._decision_of(snapshot)
        ready, waiting = confirmed(remembered.proposed, decision.commands, now)
        ready = still_valid(self._settings.name, ready, inputs.view.pods, self._context)
        ready = tuple(self._policies.noted(ready, priced.snapshot))
        told = self._policies.tell(decision, priced.snapshot, remembered.told)
        begun = self._begin(ready, priced.snapshot, claims, inputs)
        if any(proposal.since == now for proposal in waiting):
            self._again_in_s = SECOND_LOOK_S
        if begun:
            self._again_in_s = CORDONED_S
            self._record(snapshot, decision, begun)
        receiving = {place.name for proposal in ready for place in proposal.placements} if begun else set()
        histories = with_moves(with_drift(histories, decision.drifted, now), receiving, now)
        self._memory.save(self._settings.name, replace(remembered, histories=histories, proposed=waiting, told=told))
        self._policies.decided(decision, snapshot)
        return decision, begun, len(waiting)

    def _begin(
        self,
        proposals: Sequence[DisruptionProposal],
        snapshot: Snapshot,
        claims: Sequence[NodeClaim],
        inputs: DecisionInputs,
    ) -> list[str]:
        """Write the commands and their replacements; none when somebody decided meanwhile: the next minute will."""
        epoch, now = snapshot.epoch, snapshot.now
        by_node = {claim.node_name: claim for claim in claims}
        if not proposals:
            return []
        commands = []
        planned: list[PlannedClaim] = []
        for proposal in proposals:
            name = _command_name(proposal, epoch)
            named = [
                replace(claim, name=claim_name(claim.node_pool, f"{name}-{number}"))
                for number, claim in enumerate(proposal.replacements)
            ]
            planned += named
            commands.append(self._command(name, proposal, named, by_node, now))
        hint = claim_events.disruption_hint(self._settings.name, epoch)
        # Nobody owns them, so that the next sweep launches them.
        origin = ClaimOrigin(
            cluster=self._settings.name,
            owner="",
            at=now,
            lease_s=0.0,
            first_event_at=now,
            event_id=hint,
        )
        replacing = Launches(planned, records_of(planned, origin, snapshot), snapshot, inputs.state, replaces=True)
        together = launches(self._policies.marked(replacing).records)
        records = [claim for some in together for claim in with_token(some, epoch, self._settings.install)]
        replacing = replace(replacing, records=records)
        if not self._policies.may_commit(replacing):
            return []
        try:
            counted = self._policies.counted(replacing)
            self._context.state.commit(self._settings.name, epoch, records, commands, counted)
        except EpochMoved as moved:
            self._context.meter.count("EpochsMoved")
            _LOG.info("somebody decided first: %s", moved, extra={"cluster": self._settings.name})
            return []
        for command in commands:
            self._context.meter.count("CommandsBegun")
            _LOG.info("begun: %s", command.detail, extra=_facts(command))
            if command.method is Method.TERMINATE_FIRST and command.nodes[0] in self._nodes:
                publish_on_node(self._nodes[command.nodes[0]], "TerminatingFirst", command.detail, self._context)
        if planned or self._settings.manifests.capacity_buffers:  # which have lost the room on cordoned nodes
            pods = [pod for claim in planned for pod in claim.pods]
            self._context.publish(
                claim_events.pods_pending(self._settings.name, pods, "Disruption", now, event_id=hint)
            )
        # At once: until a node is cordoned, kube-scheduler puts pods on it.
        self._claims = {claim.name: claim for claim in (*claims, *records)}
        self._advance(commands)
        return [command.name for command in commands]

    def _record(self, snapshot: DisruptionSnapshot, decision: Decision, begun: Sequence[str]) -> None:
        """Keep the decision for replay; it holds whether or not it can be kept."""
        facts = {"cluster": self._settings.name, "commands": list(begun)}
        try:
            recorder = self._context.within(RECORDS, self._context.recorder)
            record_id = recorder.record_disruption(snapshot, decision)
        except ShiplapError as error:
            self._context.meter.count("DecisionsNotRecorded")
            _LOG.warning("decision not recorded: %s", error, extra=facts)
            return
        _LOG.info("decided", extra={**facts, "record_id": record_id})

    def _command(
        self,
        name: str,
        proposal: DisruptionProposal,
        claims: Sequence[PlannedClaim],
        by_node: Mapping[str, NodeClaim],
        now: float,
    ) -> DisruptionCommand:
        return DisruptionCommand(
            cluster=self._settings.name,
            name=name,
            reason=proposal.reason,
            method=proposal.method,
            targets=tuple(by_node[node].name for node in proposal.nodes),
            nodes=proposal.nodes,
            replacements=tuple(claim.name for claim in claims),
            receiving=tuple(place.name for place in proposal.placements),
            savings_hourly=proposal.savings_hourly,
            created_at=now,
            changed_at=now,
            detail=proposal.detail,
            empties_within_s=proposal.gap.emptying_most_s if proposal.gap and proposal.gap.pods else 0.0,
        )

    def _count_step(self, command: DisruptionCommand) -> None:
        self._context.meter.count(f"Commands{command.state}")
        if command.state is CommandState.DONE:
            self._context.meter.count("SavingsHourly", command.savings_hourly, "None")


def _busy(commands: Sequence[DisruptionCommand]) -> frozenset[str]:
    return frozenset().union(*(command.busy for command in commands))


def _command_name(proposal: DisruptionProposal, epoch: int) -> str:
    identity = f"{epoch}/{proposal.reason}/{'/'.join(proposal.nodes)}"
    return hashlib.sha256(identity.encode()).hexdigest()[:10]


def _facts(command: DisruptionCommand) -> dict[str, object]:
    return {
        "cluster": command.cluster,
        "command": command.name,
        "reason": str(command.reason),
        "nodes": list(command.nodes),
        "replacements": list(command.replacements),
        "savings_hourly": command.savings_hourly,
    }
