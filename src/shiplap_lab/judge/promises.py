"""Everything that always holds, by the names that users see."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Promise(StrEnum):
    """Everything that always holds. The last three are about a run: who plays it reports them."""

    WRITTEN_FIRST = "a claim is written before its instance exists"
    NO_SECOND_LAUNCH = "never more instances than claims"
    INSTANCE_EXISTS = "a claim's instance exists"
    ONE_CLAIM = "an instance has one claim"
    READ_BEFORE_WRITE = "nothing is written over what was not read"
    ONE_DECISION = "decisions are made one after the other"
    ACCOUNTED_FOR = "no instance unaccounted for"
    OWN_INSTANCES = "nothing is ended that is not ours"
    OWN_PODS = "nothing is emptied that is not ours"
    ENDED_AFTER_LEAVING = "only what leaves is ended"
    PODS_LEAVE_FIRST = "no pod ends with its node"
    POD_BUDGETS = "budgets of pods are kept"
    DO_NOT_DISRUPT = "do-not-disrupt is kept"
    LIMITS = "limits are kept"
    ASLEEP = "only what sleeps leaves for sleep"
    CEILINGS = "ceilings are kept"
    COMMITMENTS = "no commitment is counted twice"
    DISRUPTION_BUDGETS = "disruption budgets are kept"
    NODES_HOLD = "no node holds more than it has"
    NO_SECOND_MISS = "nothing misses twice"
    FEW_NODES = "few nodes for one pod"
    MONEY = "money spent equals the ledger"
    ONE_TOKEN = "a token stands for one request"  # noqa: S105 - the name of a promise
    SPOT_CHOICE = "risk leaves a choice of spot"
    CRITICAL_LAST = "critical pods leave last"
    DEADLINES = "deadlines count from the event"
    REPEATABLE = "recorded decisions can be repeated"
    SNAPSHOTS = "snapshots show what is there"
    MESSAGES = "every message can be read"
    TOLD = "what is told is so"
    AT_ONCE = "what is due is done at once"
    REST = "all comes to rest"
    GANGS = "no part of a gang is paid for longer than stated"
    REQUESTS = "capacity requests are answered as their API says"
    PATIENCE = "no pod waits longer than stated"
    FLOWS = "no flow breaks down"
    EXPECTED = "every step brings about what it expects"


class Violation(msgspec.Struct, frozen=True):
    """A promise that did not hold; `at` in seconds since the start."""

    promise: Promise
    detail: str
    at: float
