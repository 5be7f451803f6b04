"""The outcomes that threads report, as what Shiplap has to make of an answer.

`difference` compares the two. Its words:

    offering, unsupported, reservation   another instance type, zone or reservation is tried; this one rests
    subnet                               the subnet rests, others are used
    quota                                the quota's types rest until people may have raised it
    account, storage-quota               nothing is launched for a while; people have to act
    template-quota                       launches that need a new template fail and say why; others go on
    spot-role                            spot rests, on-demand is launched; people make the role
    node-class, permission, request      the EC2NodeClass is not launched from; people are told code and text
    throttled, fault                     tried again later; nothing is blamed for good
    token                                what the first request gave is looked for before another is sent
    not-visible, exists                  asked again at once, and the launch goes on
    gone, changed, absent                no error: it is what was wanted, or what is read anew
    missing                              an error with the text: people have to act
    protected                            the same for one instance; the others are ended
    credentials                          tried again with fresh credentials, and never taken for an answer
"""

from __future__ import annotations

from collections.abc import Callable

from shiplap.errors import (
    AwsError,
    AwsThrottled,
    AwsUnavailable,
    ClusterGone,
    InvalidInput,
    NodeClassNotReady,
    ShiplapError,
    StoreError,
    StoreThrottled,
)
from shiplap.instances.offerings.unavailability import ANY, FIRST_WAIT_FOR_QUOTA_S, FIRST_WAIT_S, quota_of
from tests.aws_rules.error_plays import RESERVATION, SUBNET, ZONES, Seen, asked_of
from tests.aws_rules.error_texts import ErrorText

_ATTEMPTS = 5
"""What a client sends before it gives up."""

Way = str
Check = Callable[[ErrorText, Way, Seen], str]


def difference(row: ErrorText, seen: dict[Way, Seen]) -> str:
    """Return the differences between what Shiplap does and what the thread reports; empty if there are none."""
    found = {way: _CHECKS[row.outcome](row, way, noted) for way, noted in seen.items()}
    return "; ".join(f"{way}: {text}" for way, text in found.items() if text)


def _tells(row: ErrorText, seen: Seen) -> str:
    """People need code and text to act."""
    first_words = row.message.partition(" Encoded authorization failure message")[0][:80]
    missing = [part for part in (row.code, first_words) if part not in seen.text]
    return f"the text {seen.text!r} lacks {missing}" if missing else ""


def _rests(seen: Seen, kind: str, scopes: dict[tuple[str, str, str], float]) -> str:
    if seen.error is not None:
        return f"raised {seen.error!r}"
    if seen.kinds != {kind}:
        return f"is of kind {sorted(seen.kinds)}, not {kind}"
    return "" if seen.rests == scopes else f"rests {seen.rests}, not {scopes}"


def _blamed(row: ErrorText, way: Way) -> list[tuple[str, str, str]]:
    """The offerings that a refusal blames: the one whose type it names or whose error it is, or else all."""
    asked = asked_of(row)
    offerings = asked.offerings[:1] if way == "part" or asked.names_type else asked.offerings
    return [(name, zone, asked.capacity_type) for name, zone in offerings]


def _offering(row: ErrorText, way: Way, seen: Seen) -> str:
    return _rests(seen, "capacity", dict.fromkeys(_blamed(row, way), FIRST_WAIT_S)) or _tells_part(row, seen)


def _tells_part(row: ErrorText, seen: Seen) -> str:
    return "" if row.message in seen.text else f"the text {seen.text!r} lacks the message"


def _reservation(row: ErrorText, way: Way, seen: Seen) -> str:
    del row, way
    return _rests(seen, "capacity", {(RESERVATION, ZONES[0], "reserved"): FIRST_WAIT_S})


def _subnet(row: ErrorText, way: Way, seen: Seen) -> str:
    scopes = [(SUBNET, ANY, ANY)] if way == "part" else _blamed(row, way)
    return _rests(seen, "subnet", dict.fromkeys(scopes, FIRST_WAIT_S))


def _quota(row: ErrorText, way: Way, seen: Seen) -> str:
    scopes = {(quota_of(name), ANY, capacity_type) for name, _, capacity_type in _blamed(row, way)}
    return _rests(seen, "quota", dict.fromkeys(scopes, FIRST_WAIT_FOR_QUOTA_S)) or _tells_part(row, seen)


def _everything(row: ErrorText, way: Way, seen: Seen) -> str:
    del way
    scope = (ANY, ANY, asked_of(row).capacity_type)
    return _rests(seen, "quota", {scope: FIRST_WAIT_FOR_QUOTA_S}) or _tells_part(row, seen)


def _told_of_templates(row: ErrorText, way: Way, seen: Seen) -> str:
    """Templates that exist are still launched from, so no offering may rest."""
    del way
    if type(seen.error) is not AwsError or seen.error.code != row.code:
        return f"raised {seen.error!r}, rests {seen.rests}"
    return _tells(row, seen)


def _spot_role(row: ErrorText, way: Way, seen: Seen) -> str:
    del way
    return _rests(seen, "quota", {(ANY, ANY, "spot"): FIRST_WAIT_FOR_QUOTA_S}) or _tells_part(row, seen)


def _told(row: ErrorText, way: Way, seen: Seen) -> str:
    """Of a launch: the EC2NodeClass is not launched from. Else: an error that is not tried again at once."""
    if way == "part":
        return _rests(seen, "configuration", {}) or _tells_part(row, seen)
    if way in ("whole", "template"):
        kind: type[ShiplapError] = NodeClassNotReady
    elif row.service in ("sqs", "dynamodb", "s3"):
        kind = StoreError
    else:
        kind = AwsError
    if row.service == "iam":  # the instance profile is not taken for missing
        return "" if seen.answer is False else f"answered {seen.answer}"
    if row.code in ("InvalidAMIID.NotFound", "ParameterNotFound"):  # people are told that no image matches
        return "" if isinstance(seen.error, AwsError) else f"raised {seen.error!r}"
    wrong = not isinstance(seen.error, kind) or isinstance(seen.error, StoreThrottled | AwsThrottled | AwsUnavailable)
    return f"raised {seen.error!r}" if wrong else _tells(row, seen)


def _resolves_node_class(row: ErrorText, way: Way, seen: Seen) -> str:
    if row.code == "NoSuchEntity":
        return "" if seen.answer is True else f"answered {seen.answer}"
    if way in ("whole", "template") and not isinstance(seen.error, NodeClassNotReady):
        return f"raised {seen.error!r}, rests {seen.rests}"
    return _told(row, way, seen)


def _throttled(row: ErrorText, way: Way, seen: Seen) -> str:
    if way == "part":
        return _rests(seen, "throttled", {})
    if row.service == "iam":
        return "" if seen.answer is False else f"answered {seen.answer}"
    kind: type[ShiplapError] = StoreThrottled if row.service in ("sqs", "dynamodb", "s3") else AwsThrottled
    if row.service == "cloudformation":  # asked by a command, which ends
        kind = AwsError
    return "" if isinstance(seen.error, kind) else f"raised {seen.error!r} after {seen.requests} requests"


def _fault(row: ErrorText, way: Way, seen: Seen) -> str:
    """The outcome is unknown: it is asked for again, and what a fleet says of one offering rests only that one."""
    if way == "part":
        return _rests(seen, "unknown", dict.fromkeys(_blamed(row, way), FIRST_WAIT_S))
    if row.service in ("sqs", "s3"):
        return "" if isinstance(seen.error, StoreThrottled) else f"raised {seen.error!r}"
    if not isinstance(seen.error, AwsError) or isinstance(seen.error, NodeClassNotReady):
        return f"raised {seen.error!r}"
    if seen.error.code != "ServiceUnavailable":
        return f"its code {seen.error.code} does not say that the outcome is unknown"
    return "" if seen.requests == _ATTEMPTS else f"sent {seen.requests} times"


def _token(row: ErrorText, way: Way, seen: Seen) -> str:
    if row.code == "IdempotentInstanceTerminated":  # what it stood for is gone: another try takes another token
        return _rests(seen, "transient", {})
    if way == "part":
        return _rests(seen, "unknown", dict.fromkeys(_blamed(row, way), FIRST_WAIT_S))
    known = isinstance(seen.error, AwsError) and seen.error.code == row.code and seen.requests == 1
    return "" if known else f"raised {seen.error!r} after {seen.requests} requests"


def _goes_on(row: ErrorText, way: Way, seen: Seen) -> str:
    if way == "read":
        if row.operation == "CreateTags":  # the sweep finds the tag missing and sets it
            return "" if seen.error is None else f"raised {seen.error!r}"
        return "" if isinstance(seen.error, AwsError) else f"answered {seen.answer}"
    if seen.error is not None or not seen.answer.instances:
        return f"raised {seen.error!r}, answered {seen.answer}"
    return ""


def _no_error(row: ErrorText, way: Way, seen: Seen) -> str:
    """Nothing is wrong; a write that lost to another one says so."""
    if row.code == "TransactionCanceledException":
        lost = isinstance(seen.error, StoreError) and type(seen.error).__name__ == "ConditionFailed"
        return "" if lost else f"raised {seen.error!r}"
    if row.service == "cloudformation":
        return "" if isinstance(seen.error, InvalidInput) else f"raised {seen.error!r}"
    if row.service == "dynamodb":
        return "" if seen.answer is False else f"raised {seen.error!r}, answered {seen.answer}"
    if row.service == "s3":
        return "" if seen.error is None or not isinstance(seen.error, StoreThrottled) else f"raised {seen.error!r}"
    del way
    return "" if seen.error is None else f"raised {seen.error!r}"


def _missing(row: ErrorText, way: Way, seen: Seen) -> str:
    if row.service == "eks" and not isinstance(seen.error, ClusterGone):
        return f"raised {seen.error!r}"
    if row.service == "eks":
        return ""
    return _told(row, way, seen)


def _protected(row: ErrorText, way: Way, seen: Seen) -> str:
    del way
    if not isinstance(seen.error, AwsError) or seen.error.code != row.code:
        return f"raised {seen.error!r}"
    return "" if seen.requests == 3 else f"ended nothing else in {seen.requests} requests"


def _renewed(row: ErrorText, way: Way, seen: Seen) -> str:
    if way == "part":
        return _rests(seen, "transient", {})
    kind: type[ShiplapError] = StoreThrottled if row.service in ("sqs", "dynamodb", "s3") else AwsUnavailable
    return "" if isinstance(seen.error, kind) else f"raised {seen.error!r}"


_CHECKS: dict[str, Check] = {
    "offering": _offering,
    "unsupported": _offering,
    "reservation": _reservation,
    "subnet": _subnet,
    "quota": _quota,
    "account": _everything,
    "storage-quota": _everything,
    "template-quota": _told_of_templates,
    "spot-role": _spot_role,
    "node-class": _resolves_node_class,
    "permission": _told,
    "request": _told,
    "throttled": _throttled,
    "fault": _fault,
    "token": _token,
    "not-visible": _goes_on,
    "exists": _goes_on,
    "gone": _no_error,
    "changed": _no_error,
    "absent": _no_error,
    "missing": _missing,
    "protected": _protected,
    "credentials": _renewed,
}
