"""The present state of a claim: its Node with conditions and pods, and whether it is a candidate for disruption.

A history holds recorded events; the present state comes from the cluster. `unseen` lists what could not be read.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Taint
from shiplap.kubernetes.taints import is_disrupted
from shiplap.manifests.nodeclaim import FINAL, IN_FLIGHT, LEAVING, NodeClaim
from shiplap.scheduling.model.planned_pods import pair
from shiplap_cli.accounts.node_account import NodeAccount, node_account_of
from shiplap_cli.inputs.disruption_inputs import disruption_snapshot
from shiplap_cli.inputs.loaded_inputs import LoadedInputs
from shiplap_cli.money import Money, dollars
from shiplap_cli.output import Printed, summary, warning_line
from shiplap_cli.render.decision_documents import CommandDocument, caveat_texts, command_document


class PresentState(Printed, frozen=True):
    """`node` is empty where the claim has none, and `standing` says why. `pods` are all on it, `namespace/name`.

    `moving` are those that would have to move, and `disruption` says in words whether the node goes or what keeps it;
    `command` is what it would go with. `unseen` says what the answer does not rest on.
    """

    claim: str
    standing: str
    node: str = ""
    conditions: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    moving: tuple[str, ...] = ()
    disruption: str = ""
    command: CommandDocument | None = None
    unseen: tuple[str, ...] = ()


def present_state_of(name: str, inputs: LoadedInputs) -> PresentState | None:
    """The present state of the claim of that name, Node or instance; None when neither claims nor Nodes have it."""
    nodes, claims = inputs.snapshot.view.nodes, _claims(inputs)
    paired, _ = pair(nodes, claims)
    claim = next((each for each in claims if name in (each.name, each.node_name, each.instance_id)), None)
    node = _node_of(name, claim, nodes, {paired[each].name: each for each in paired})
    if claim is None and node is None:
        return None
    called = claim.name if claim is not None else name
    unseen = caveat_texts(inputs)
    if node is None:
        blind = any(permission.resource == "nodes" for permission in inputs.unseen)
        return PresentState(called, _status_without_node(claim, inputs.snapshot.now, blind=blind), unseen=unseen)
    disruption = disruption_snapshot(inputs)
    account, money = node_account_of(disruption, node.metadata.name), Money(disruption.scheduling)
    on_it = (pod.key for pod in inputs.snapshot.view.pods if pod.spec.node_name == node.metadata.name)
    state = f"the claim is {claim.state}" if claim is not None else "no claim of it is known"
    return PresentState(
        claim=called,
        standing=f"{state}, and its Node {node.metadata.name} is there" + _departure(node),
        node=node.metadata.name,
        conditions=tuple(_conditions(node)),
        taints=tuple(map(_taint_text, node.spec.taints)),
        pods=tuple(sorted(on_it)),
        moving=account.pods,
        disruption=_disruption(account, claim, money),
        command=command_document(account.command, money) if account.command is not None else None,
        unseen=unseen,
    )


def unreachable_state(name: str, reason: str) -> PresentState:
    """The state when the cluster cannot be asked; the recorded history is shown all the same."""
    return PresentState(name, "how it stands now was not seen", unseen=(reason,))


def present_state_page(state: PresentState) -> RenderableType:
    """The state as a page."""
    table = Table(box=None, show_header=False, pad_edge=False)
    moving = f"{len(state.moving)} would have to move: {summary(state.moving)}" if state.moving else "none would move"
    # As texts: messages of conditions may hold what Rich takes for markup.
    table.add_row("conditions", Text("\n".join(state.conditions) or "the kubelet has reported none"))
    table.add_row("taints", Text(", ".join(state.taints) or "none"))
    table.add_row("pods", f"{len(state.pods)} on it; {moving}")
    table.add_row("disruption", Text(state.disruption))
    parts: list[RenderableType] = [Text(state.standing)]
    if state.node:
        parts.append(table)
    return Group(*parts, *map(warning_line, state.unseen))


def _claims(inputs: LoadedInputs) -> Sequence[NodeClaim]:
    """The claims of the install where its table could be read, else the cluster's own NodeClaims."""
    known = inputs.decision.installed.claims if inputs.decision is not None else None
    return known if known is not None else inputs.snapshot.claims


def _node_of(name: str, claim: NodeClaim | None, nodes: Sequence[Node], of_claims: dict[str, str]) -> Node | None:
    wanted = of_claims.get(claim.name, "") if claim is not None else ""
    for node in nodes:
        if node.metadata.name == wanted or (claim is None and name == node.metadata.labels.get(labels.NODE_CLAIM)):
            return node
    return None


def _status_without_node(claim: NodeClaim | None, now: float, *, blind: bool) -> str:
    if claim is None or blind:
        return "its Node could not be looked for"
    words = f"the claim is {claim.state}, and there is no Node of it"
    if claim.state in FINAL:
        return words + (f": {claim.failure}" if claim.failure else "")
    if claim.instance_id and claim.state in IN_FLIGHT and not claim.node_name:
        return f"{words}: instance {claim.instance_id} has not joined in the {now - claim.changed_at:.0f} s since"
    if claim.state in LEAVING:
        return f"{words} any more: it is on its way out"
    return f"{words}: " + ("it has gone" if claim.node_name else "it has no instance yet")


def _departure(node: Node) -> str:
    if node.metadata.deletion_timestamp:
        return f"; it is being deleted since {node.metadata.deletion_timestamp}"
    if node.spec.unschedulable:
        return "; it is cordoned"
    return "; it is cordoned, as it is about to go" if is_disrupted(node.spec.taints) else ""


def _taint_text(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _conditions(node: Node) -> list[str]:
    """Ready, and every other one that is not as it should be."""
    lines = []
    for each in sorted(node.status.conditions, key=lambda condition: (condition.type != "Ready", condition.type)):
        if each.type == "Ready" or each.status != "False":
            since = f" since {each.last_transition_time}" if each.last_transition_time else ""
            why = ": ".join(filter(None, (each.reason, each.message)))
            lines.append(f"{each.type} is {each.status}{since}" + (f" ({why})" if why else ""))
    return lines


def _disruption(account: NodeAccount, claim: NodeClaim | None, money: Money) -> str:
    if account.command is not None:
        command = account.command
        instead = f"for {summary([item.name for item in command.replacements])}" if command.replacements else ""
        words = (f"goes now: {command.reason}", instead, f"saves {dollars(money.saved([command]))}/h", command.detail)
        return ", ".join(filter(None, words))
    if account.stays:
        return f"stays: {account.stays}"
    if not account.node_pool:
        return "no candidate: it is of no NodePool, so it is left alone"
    return f"no candidate: its claim is {claim.state}" if claim is not None else "no candidate: it has no claim"
