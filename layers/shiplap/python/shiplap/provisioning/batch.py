"""A batch of queue messages: one flow per cluster for all of its messages, and no message holds up another.

A message nobody can read goes to the dead letters at once, with the reason. One for a cluster that is not configured is
dropped. The messages of a cluster whose flow did not come to its end are returned as failed, and stay in the queue.
That holds for whatever a flow raises: what one cluster's objects bring down must not stop the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from shiplap.errors import InvalidMessage, ShiplapError, StoreError, UnknownCluster
from shiplap.ports import DeadLetters, Meter
from shiplap.provisioning.messages import Message
from shiplap.settings import ClusterSettings, Settings

_LOG = logging.getLogger(__name__)

Hint = TypeVar("Hint", bound=Message)


def run(
    records: Iterable[Mapping[str, Any]],
    read: Callable[[str, str], Hint],
    flow: Callable[[ClusterSettings, Sequence[Hint]], str],
    *,
    settings: Settings,
    dead_letters: DeadLetters,
    meter: Meter,
) -> dict[str, list[dict[str, str]]]:
    """Handle a Lambda batch of SQS records.

    Args:
        records: the event's `Records`; `messageId`, `body` and `eventSourceARN` are read.
        read: decodes a body, given also the name of its queue; raises InvalidMessage.
        flow: handles all messages of one cluster; returns what is left to do, empty when nothing is.
        settings: the clusters of this install.
        dead_letters: takes malformed messages.
        meter: counts what went wrong, by name.

    Returns:
        Lambda's partial batch response: the messages to deliver again.
    """
    failed: list[str] = []
    hints: dict[str, list[tuple[str, Hint]]] = {}
    for record in records:
        message_id, body = str(record["messageId"]), str(record["body"])
        try:
            hint = read(body, str(record.get("eventSourceARN", "")).rpartition(":")[2] or "queue")
            hints.setdefault(hint.cluster, []).append((message_id, hint))
        except InvalidMessage as error:
            if not _bury(body, error, dead_letters, meter):
                failed.append(message_id)
    for cluster in sorted(hints):
        if not _serve(cluster, [hint for _, hint in hints[cluster]], flow, settings, meter):
            failed += [message_id for message_id, _ in hints[cluster]]
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}


def _bury(body: str, error: InvalidMessage, dead_letters: DeadLetters, meter: Meter) -> bool:
    meter.count("MalformedMessages")
    _LOG.error("malformed message: %s", error)
    try:
        dead_letters.send(body, str(error))
    except StoreError as refusal:  # then the queue's own redrive policy takes it there, later and without the reason
        _LOG.warning("dead letter not sent: %s", refusal)
        return False
    return True


def _serve(
    cluster: str,
    hints: Sequence[Hint],
    flow: Callable[[ClusterSettings, Sequence[Hint]], str],
    settings: Settings,
    meter: Meter,
) -> bool:
    """Whether the messages are done with."""
    facts = {"cluster": cluster, "messages": len(hints)}
    try:
        known = settings.cluster(cluster)
    except UnknownCluster as error:
        meter.count("UnknownClusters", len(hints))
        _LOG.warning("dropped: %s", error, extra=facts)
        return True
    try:
        unfinished = flow(known, hints)
    except ShiplapError as error:
        meter.count(type(error).__name__)
        _LOG.error("not done: %s", error, extra={**facts, "error": type(error).__name__})
        return False
    except Exception as error:  # noqa: BLE001 - see the module's docstring; a bug is logged with its traceback
        meter.count("UnexpectedErrors")
        _LOG.exception("a flow broke down", extra={**facts, "error": type(error).__name__})
        return False
    if unfinished:
        meter.count("Unfinished")
        _LOG.warning("not done: %s", unfinished, extra=facts)
    return not unfinished
