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
Content = TypeVar("Content")


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
    messages, failed = _read_all(records, read, dead_letters, meter)
    hints: dict[str, list[tuple[str, Hint]]] = {}
    for message_id, hint in messages:
        hints.setdefault(hint.cluster, []).append((message_id, hint))
    for cluster in sorted(hints):
        if not _serve(cluster, [hint for _, hint in hints[cluster]], flow, settings, meter):
            failed += [message_id for message_id, _ in hints[cluster]]
    return _answer(failed)


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

        if not _is_done(act, {"message_id": message_id}, meter):
            failed.append(message_id)
    return _answer(failed)


def _read_all(
    records: Iterable[Mapping[str, Any]],
    read: Callable[[str, str], Content],
    dead_letters: DeadLetters,
    meter: Meter,
) -> tuple[list[tuple[str, Content]], list[str]]:
    """What can be read, by message id; and the ids of malformed messages that could not be set aside."""
    messages: list[tuple[str, Content]] = []
    failed: list[str] = []
    for record in records:
        message_id, body = str(record["messageId"]), str(record["body"])
        try:
            content = read(body, str(record.get("eventSourceARN", "")).rpartition(":")[2] or "queue")
        except InvalidMessage as error:
            if not _bury(body, error, dead_letters, meter):
                failed.append(message_id)
        else:
            messages.append((message_id, content))
    return messages, failed


def _answer(failed: Iterable[str]) -> dict[str, list[dict[str, str]]]:
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
    return _is_done(lambda: flow(known, hints), facts, meter)


def _is_done(act: Callable[[], str], facts: Mapping[str, Any], meter: Meter) -> bool:
    """Whether a flow came to its end; it returns what is left to do."""
    try:
        unfinished = act()
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
