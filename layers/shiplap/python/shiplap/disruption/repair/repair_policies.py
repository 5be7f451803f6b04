"""Repair policies: how long a bad condition of a Node is waited out, by its type, its status and its reason.

The EKS node monitoring agent writes the code of a GPU's failure (XID) into the reason. Reasons are compared with
regular expressions. Python bounds no search, so only expressions are allowed whose searches are short by their form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Annotated

import msgspec

from shiplap.kubernetes.objects import Node, NodeCondition
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.decoding import demands
from shiplap.manifests.times import DURATION_OR_NEVER, seconds_or_never

REBOOT = "Reboot"

MOST_REASON = 128
"""Characters of a reason that are compared."""

MOST_REPETITIONS = 3
"""Repetitions of an expression: each multiplies the ways to match by the characters of the reason."""

MOST_ALTERNATIVES = 32
"""The product of the alternatives of all groups of an expression."""


OF_KUBELET = frozenset({"DiskPressure", "MemoryPressure", "NetworkUnavailable", "PIDPressure"})
"""Conditions that every kubelet or cloud controller writes, beside Ready."""

NEARLY = 0.85
"""The least likeness of a misspelt condition, by difflib: `NetworkReady` and `NetworkingReady` have 0.89, two known
conditions 0.78 at most."""


class RepairPolicy(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """A condition of nodes that repair acts on."""

    condition: Annotated[str, demands(shortest=1)]
    """The type of the condition."""
    status: Annotated[str, demands(choices=("True", "False", "Unknown"))] = "False"
    """The bad status, in quotes."""
    reason: str = ""
    """A regular expression for the whole reason; without one, the policy holds where no other one does."""
    tolerated: Annotated[
        str, demands(pattern=DURATION_OR_NEVER, form="a duration such as 10m or 1h30m, or Never", unit="s")
    ] = "30m"
    """How long the condition is waited out, such as 10m; `Never` ends that never."""
    priority: int = 0
    """Nodes of higher priority are repaired first."""
    action: Annotated[str, demands(choices=("Replace", REBOOT))] = "Replace"
    """Replace, or Reboot: the node is replaced if that does not heal it."""

    def problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield invalid fields as written, and the reasons."""
        if meant := _misspelt(self.condition):
            yield ("condition",), f"{self.condition!r} is no condition of nodes; did you mean {meant}?"
        if why := wrong_expression(self.reason):
            yield ("reason",), why


def _misspelt(condition: str) -> str:
    """Return the known condition that is nearly so written; nothing for a known one, and for one of a tool's own."""
    known = {item.condition for item in BUILT_IN} | OF_KUBELET
    by_small_letters = {name.lower(): name for name in sorted(known)}
    near = get_close_matches(condition.lower(), by_small_letters, n=1, cutoff=NEARLY)
    return by_small_letters[near[0]] if near and condition not in known else ""


class SickCondition(msgspec.Struct, frozen=True):
    """A condition that has been bad for longer than is tolerated."""

    words: str
    priority: int = 0
    reboots: bool = False
    """True if every policy that is due asks for a reboot."""


BUILT_IN: tuple[RepairPolicy, ...] = (
    RepairPolicy("Ready", "False", ".*"),
    RepairPolicy("Ready", "Unknown", ".*"),
    RepairPolicy(
        "AcceleratedHardwareReady", "False", ".*XID(46|48|54|62|63|95|109|110|136|140|143|155|156|158).*", "10m"
    ),
    RepairPolicy("AcceleratedHardwareReady", "False", ".*XID(64|74|79|119|120).*", "10m"),
    RepairPolicy("AcceleratedHardwareReady"),
    RepairPolicy("ContainerRuntimeReady", "False", ".*"),
    RepairPolicy("KernelReady", "False", ".*"),
    RepairPolicy("NetworkingReady", "False", ".*"),
    RepairPolicy("StorageReady", "False", ".*"),
)
"""The policies and times that Karpenter uses on AWS. All but Ready are written by the EKS node monitoring agent."""


def policy_problems(policies: Sequence[RepairPolicy]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield invalid fields of policies, and the reasons."""
    for place, policy in enumerate(policies):
        yield from (((place, *field), why) for field, why in policy.problems())


def sick_condition(
    node: Node, policies: Sequence[RepairPolicy], now: float, healed_at: float = 0.0
) -> SickCondition | None:
    """Return the condition that has been bad for too long, the one of highest priority; None if there is none.

    Where one of `policies` is for a condition and its reason, the built-in ones are not. After a reboot, which ended at
    `healed_at`, all conditions are waited out anew: what writes them may be late.
    """
    found, replaced = [], False
    for condition in node.status.conditions:
        chosen = _policies_for(condition, policies) or _policies_for(condition, BUILT_IN)
        since = epoch(condition.last_transition_time) if condition.last_transition_time else now
        from_s = max(since, healed_at)
        ends = [(item, seconds_or_never(item.tolerated)) for item in chosen]
        due = [item for item, tolerated_s in ends if tolerated_s is not None and now >= from_s + tolerated_s]
        if due:
            replaced |= any(item.action != REBOOT for item in due)
            cause = f" ({condition.reason[:MOST_REASON]})" if condition.reason else ""
            words = f"its condition {condition.type} has been {condition.status} for {now - since:.0f} s{cause}"
            found.append(SickCondition(words, max(item.priority for item in due)))
    first = max(found, key=lambda item: item.priority, default=None)
    return msgspec.structs.replace(first, reboots=not replaced) if first is not None else None


def _policies_for(condition: NodeCondition, policies: Sequence[RepairPolicy]) -> list[RepairPolicy]:
    """The policies for a condition: those for its reason, else those without one."""
    mine = [item for item in policies if (item.condition, item.status) == (condition.type, condition.status)]
    reason = condition.reason[:MOST_REASON]
    special = [item for item in mine if item.reason and re.fullmatch(item.reason, reason, re.DOTALL)]
    return special or [item for item in mine if not item.reason]


def wrong_expression(pattern: str) -> str:
    """Return why a regular expression is not allowed, or nothing.

    Each repetition, also an optional character, is of one character or class; groups are not repeated. So the ways to
    match are bounded by the repetitions and the alternatives, and none of them is nested.
    """
    try:
        re.compile(pattern)
    except re.error as error:
        return f"{pattern!r} is not a regular expression: {error}"
    bare = re.sub(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\[^0-9]", "x", pattern)
    if "\\" in bare or re.search(r"\(\?(?!:)", bare):
        return f"{pattern!r} refers back, looks around or names a group, which takes too long to match"
    plain = bare.replace("(?:", "(")
    if "{" in plain or re.search(r"\)[*+?]", plain):
        return f"{pattern!r} repeats a group or counts, which may take too long to match: repeat single characters"
    if sum(plain.count(sign) for sign in "*+?") > MOST_REPETITIONS:
        return f"{pattern!r} has more than {MOST_REPETITIONS} repetitions, which may take too long to match"
    if _alternatives(plain) > MOST_ALTERNATIVES:
        return f"{pattern!r} has too many alternatives: multiplied over its groups, at most {MOST_ALTERNATIVES}"
    return ""


def _alternatives(plain: str) -> int:
    """The product of the alternatives of an expression's groups, and of the whole."""
    product, open_groups = 1, [1]
    for sign in plain:
        if sign == "(":
            open_groups.append(1)
        elif sign == "|":
            open_groups[-1] += 1
        elif sign == ")":
            product *= open_groups.pop()
    return product * open_groups[0]
