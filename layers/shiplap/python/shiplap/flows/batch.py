"""A batch of queue messages: one flow per cluster for all of its messages, and no message holds up another.

A message nobody can read goes to the dead letters at once, with the reason. One for a cluster that is not configured is
dropped. The messages of a cluster whose flow did not come to its end are returned as failed, and stay in the queue; if
the flow names the messages that failed (`HintsFailed`), the others are done with.
That holds for whatever a flow raises: what one cluster's objects bring down must not stop the others. Nor must a
cluster that is slow or out of reach: `shiplap.flows.turns` gives each a time of its own. A message without a
cluster is for all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from shiplap.errors import ClustersNotServed, HintsFailed, InvalidMessage, ShiplapError, StoreError, UnknownCluster
from shiplap.flows.messages import Message
from shiplap.flows.turns import Due, Turns
from shiplap.ports import DeadLetters, Meter
from shiplap.settings import ClusterSettings, Settings

_LOG = logging.getLogger(__name__)

Hint = TypeVar("Hint", bound=Message)
Content = TypeVar("Content")


def run(
    records: Iterable[Mapping[str, Any]],
    read: Callable[[str, str], Hint],
    flow: Callable[[ClusterSettings, Sequence[Hint], float], str],
    *,
    settings: Settings,
    dead_letters: DeadLetters,
    meter: Meter,
    turns: Turns,
    hand_on: Callable[[ClusterSettings, float], None] | None = None,
) -> dict[str, list[dict[str, str]]]:
    """Handle a Lambda batch of SQS records.

    Args:
        records: the event's `Records`; `messageId`, `body` and `eventSourceARN` are read.
        read: decodes a body, given also the name of its queue; raises InvalidMessage.
        flow: handles all messages of one cluster until a moment in epoch seconds; returns what is left to do, empty
            when nothing is. Raises HintsFailed when only single messages failed.
        settings: the clusters that the function serves.
        dead_letters: takes malformed messages.
        meter: counts what went wrong, by name.
        turns: how the invocation's time is divided.
        hand_on: has another invocation serve a cluster whose turn did not come, given when its oldest message is from;
            raises ShiplapError. Without it, or where it fails, the cluster's messages are returned as failed.

    Returns:
        Lambda's partial batch response: the messages to deliver again.
    """
    messages, failed = _read_all(records, read, dead_letters, meter)
    hints = _by_cluster(messages, settings, meter)

    def serve(cluster: ClusterSettings, until: float) -> None:
        own = hints[cluster.name]
        facts = {"cluster": cluster.name, "messages": len(own)}
        if (error := _error_of(lambda: flow(cluster, [hint for _, hint in own], until), facts, meter)) is not None:
            culprits = error.hints if isinstance(error, HintsFailed) else None
            failed.extend(message_id for message_id, hint in own if culprits is None or hint in culprits)

    for due in turns.take([_due(settings.cluster(name), hints[name]) for name in sorted(hints)], serve):
        meter.count("TurnsMissed")
        if not _hands_on(due, hand_on):
            failed += [message_id for message_id, _ in hints[due.cluster.name]]
    return _batch_response(dict.fromkeys(failed))


def _by_cluster(
    messages: Iterable[tuple[str, Hint]], settings: Settings, meter: Meter
) -> dict[str, list[tuple[str, Hint]]]:
    """The messages of each cluster; those for all of them are among those of each."""
    hints: dict[str, list[tuple[str, Hint]]] = {}
    for message_id, hint in messages:
        names = [hint.cluster] if hint.cluster else [cluster.name for cluster in settings.clusters]
        for name in names:
            hints.setdefault(name, []).append((message_id, hint))
    for name in sorted(hints):
        try:
            settings.cluster(name)
        except UnknownCluster as error:
            unknown = hints.pop(name)
            meter.count("UnknownClusters", len(unknown))
            _LOG.warning("dropped: %s", error, extra={"cluster": name, "messages": len(unknown)})
    return hints


def _due(cluster: ClusterSettings, hints: Sequence[tuple[str, Hint]]) -> Due:
    since = min((time for _, hint in hints if (time := getattr(hint, "time", 0.0))), default=0.0)
    return Due(cluster, since, named=any(hint.cluster for _, hint in hints))


def _hands_on(due: Due, hand_on: Callable[[ClusterSettings, float], None] | None) -> bool:
    facts = {"cluster": due.cluster.name}
    if hand_on is None:
        _LOG.warning("its turn did not come: its messages are delivered again", extra=facts)
        return False
    try:
        hand_on(due.cluster, due.since)
    except ShiplapError as error:
        _LOG.warning("its turn did not come, and it is not handed on: %s", error, extra=facts)
        return False
    _LOG.info("its turn did not come: handed on", extra=facts)
    return True


def serve_all(
    clusters: Iterable[ClusterSettings],
    flow: Callable[[ClusterSettings], None],
    *,
    meter: Meter,
    turns: Turns,
    hand_on: Callable[[ClusterSettings, float], None],
) -> None:
    """As `run`, for what time starts for all clusters: those in which a probe finds work are served, one by one.

    Raises:
        ClustersNotServed: after all turns, if the flow of some cluster did not come to its end, or it was neither
            served nor handed on.
    """
    failed: list[str] = []

    def serve(cluster: ClusterSettings, _until: float) -> None:
        def act() -> str:
            flow(cluster)
            return ""

        if _error_of(act, {"cluster": cluster.name}, meter) is not None:
            failed.append(cluster.name)

    for due in turns.take([Due(cluster, named=False) for cluster in clusters], serve):
        meter.count("TurnsMissed")
        if not _hands_on(due, hand_on):
            failed.append(due.cluster.name)
    if failed:
        raise ClustersNotServed(failed)


def run_each(
    records: Iterable[Mapping[str, Any]],
    read: Callable[[str, str], Content],
    flow: Callable[[Content], None],
    *,
    dead_letters: DeadLetters,
    meter: Meter,
) -> dict[str, list[dict[str, str]]]:
    """As `run`, for messages that name no cluster: `flow` handles them one by one."""
    messages, failed = _read_all(records, read, dead_letters, meter)
    for message_id, content in messages:

        def act(content: Content = content) -> str:
            flow(content)
            return ""

        if _error_of(act, {"message_id": message_id}, meter) is not None:
            failed.append(message_id)
    return _batch_response(failed)


def _read_all(
    records: Iterable[Mapping[str, Any]],
    read: Callable[[str, str], Content],
    dead_letters: DeadLetters,
    meter: Meter,
) -> tuple[list[tuple[str, Content]], list[str]]:
    """Return the readable messages, by message id; and the ids of malformed messages that could not be set aside."""
    messages: list[tuple[str, Content]] = []
    failed: list[str] = []
    for record in records:
        message_id, body = str(record["messageId"]), str(record["body"])
        try:
            content = read(body, str(record.get("eventSourceARN", "")).rpartition(":")[2] or "queue")
        except InvalidMessage as error:
            if not _send_to_dead_letters(body, error, dead_letters, meter):
                failed.append(message_id)
        else:
            messages.append((message_id, content))
    return messages, failed


def _batch_response(failed: Iterable[str]) -> dict[str, list[dict[str, str]]]:
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}


def _send_to_dead_letters(body: str, error: InvalidMessage, dead_letters: DeadLetters, meter: Meter) -> bool:
    meter.count("MalformedMessages")
    _LOG.error("malformed message: %s", error)
    try:
        dead_letters.send(body, str(error))
    except StoreError as refusal:  # then the queue's own redrive policy takes it there, later and without the reason
        _LOG.warning("dead letter not sent: %s", refusal)
        return False
    return True


class _Unfinished(Exception):
    """A flow came to its end and left something to do."""


def _error_of(act: Callable[[], str], facts: Mapping[str, Any], meter: Meter) -> Exception | None:
    """The reason why a flow did not come to its end, which is logged; the flow returns what is left to do."""
    try:
        unfinished = act()
    except ShiplapError as error:
        kind = type(error.__cause__ or error).__name__ if isinstance(error, HintsFailed) else type(error).__name__
        meter.count(kind)
        _LOG.error("not done: %s", error, extra={**facts, "error": kind})
        return error
    except Exception as error:  # noqa: BLE001 - see the module's docstring; a bug is logged with its traceback
        meter.count("UnexpectedErrors")
        _LOG.exception("a flow broke down", extra={**facts, "error": type(error).__name__})
        return error
    if unfinished:
        meter.count("Unfinished")
        _LOG.warning("not done: %s", unfinished, extra=facts)
        return _Unfinished(unfinished)
    return None
