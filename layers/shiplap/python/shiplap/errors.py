"""Every error Shiplap raises on purpose, so that callers can tell what is worth retrying.

ShiplapError
├── InvalidInput                 what a person wrote or sent is wrong; never retried
│   ├── InvalidManifests         manifests with one problem or several
│   └── InvalidMessage           a queue message or an event that cannot be read
├── UnknownCluster               an event names a cluster that is not configured
├── ClustersNotServed            the turn of a cluster failed or did not come
├── HintsFailed                  single messages of a cluster failed, its other messages were handled
├── ClusterError                 the Kubernetes API answered with a refusal
│   ├── ClusterUnreachable       no answer, or a 5xx: worth another try later
│   ├── ClusterDenied            401 or 403: RBAC or the access entry must be corrected
│   ├── ClusterGone              EKS knows no cluster of this name any more
│   ├── ObjectNotFound           404
│   ├── ObjectConflict           409: somebody else changed the object first
│   ├── TooManyRequests          429: throttled, or an eviction that a PDB forbids
│   ├── AnswerTooLarge           the answer has more bytes than are read: ask for less at once
│   └── ResourceVersionGone      410: the watch must start again from a fresh list
├── StoreError                   the state could not be read or written
│   ├── EpochMoved               another decision was committed first: plan again
│   ├── ConditionFailed          the item is not in the state the caller expected
│   └── StoreThrottled           worth another try later
└── AwsError                     EC2, SSM or another AWS service refused
    ├── NodeClassNotReady        the EC2NodeClass cannot be launched from as written
    ├── AwsThrottled             worth another try later
    └── AwsUnavailable           the same: credentials ran out, or AWS asks for the request again
"""

from __future__ import annotations

from collections.abc import Sequence


class ShiplapError(Exception):
    """Base of all deliberate errors; `str()` of it is one line a user can act on."""


class InvalidInput(ShiplapError):
    """Something a person wrote is wrong.

    Attributes:
        source: file, argument or queue the input came from.
        document: which document in it, for example `NodePool/default` or `document 2`; may be empty.
        field: path of the field, for example `spec.template.spec.requirements[0].operator`; may be empty.
        reason: what is wrong and what would be right.
        line: line of the source, counted from 1, or 0 when it is not known.
        is_refused_by_api_server: whether an API server with upstream's CRDs refuses a manifest for it, too.
    """

    def __init__(
        self,
        source: str,
        reason: str,
        *,
        document: str = "",
        field: str = "",
        line: int = 0,
        is_refused_by_api_server: bool = False,
    ) -> None:
        self.source = source
        self.document = document
        self.field = field
        self.reason = reason
        self.line = line
        self.is_refused_by_api_server = is_refused_by_api_server
        where = f"{source}:{line}" if source and line else source
        super().__init__(": ".join(part for part in (where, document, field, reason) if part))

    @property
    def what(self) -> str:
        """Field and reason, for where it is plain which object is meant."""
        return ": ".join(part for part in (self.field, self.reason) if part)

    @property
    def as_warning(self) -> str:
        """The line of what is legal and surely not meant, as compilers print theirs."""
        return ": ".join(part for part in (f"{self.source}:{self.line}", "warning", self.document, self.what) if part)


class InvalidManifests(InvalidInput):
    """Manifests with problems: `problems` holds all of them, in the order of files and lines; there is at least one.

    As an InvalidInput it speaks of the first problem and says how many more there are.
    """

    def __init__(self, problems: Sequence[InvalidInput]) -> None:
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(first.source, first.reason + more, document=first.document, field=first.field, line=first.line)
        self.problems = tuple(problems)


def each_problem(error: InvalidInput) -> tuple[InvalidInput, ...]:
    """Return the problems of an error that may hold several."""
    return error.problems if isinstance(error, InvalidManifests) else (error,)


class InvalidMessage(InvalidInput):
    """A queue message or event that cannot be read; it belongs in the dead-letter queue."""


class UnknownCluster(ShiplapError):
    """An event names a cluster that this install does not serve."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        super().__init__(f"cluster {cluster!r} is not configured in this install")


class ClustersNotServed(ShiplapError):
    """Of the clusters that share an invocation, some were not served; what each of them met has been logged."""

    def __init__(self, clusters: Sequence[str]) -> None:
        self.clusters = tuple(sorted(clusters))
        super().__init__(f"not served: {', '.join(self.clusters)}; the log lines before this one say why")


class HintsFailed(ShiplapError):
    """Single messages of a cluster failed; its other messages were handled.

    Attributes:
        hints: the messages to deliver again.
    """

    def __init__(self, hints: Sequence[object], message: str) -> None:
        self.hints = tuple(hints)
        super().__init__(message)


class ClusterError(ShiplapError):
    """The Kubernetes API refused a request.

    Attributes:
        status: HTTP status, or 0 when there was no answer.
    """

    def __init__(self, message: str, *, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


class ClusterUnreachable(ClusterError):
    """No answer from the API server, or a 5xx."""


class ClusterDenied(ClusterError):
    """401 or 403: the access entry or the RBAC manifest lacks something."""


class ClusterGone(ClusterError):
    """EKS knows no cluster of this name: it was deleted, or never was."""


class ObjectNotFound(ClusterError):
    """404."""


class ObjectConflict(ClusterError):
    """409: the object changed since it was read."""


class TooManyRequests(ClusterError):
    """429: client throttled, or an eviction that a PodDisruptionBudget forbids now (403 where its status is odd)."""


class AnswerTooLarge(ClusterError):
    """The API server's answer, or a line of a watch, holds more bytes than are read."""


class ResourceVersionGone(ClusterError):
    """410: the resourceVersion is too old; list again."""


class StoreError(ShiplapError):
    """The state store could not do what was asked."""


class EpochMoved(StoreError):
    """Another function committed a decision for this cluster first; plan again on fresh state."""

    def __init__(self, cluster: str, expected: int) -> None:
        self.cluster = cluster
        self.expected = expected
        super().__init__(f"cluster {cluster}: epoch {expected} is no longer current")


class ConditionFailed(StoreError):
    """The item was not in the expected state, so nothing was written."""


class StoreThrottled(StoreError):
    """The store asked to slow down."""


class AwsError(ShiplapError):
    """An AWS service refused a request.

    Attributes:
        code: the service's error code, for example `UnauthorizedOperation`.
    """

    def __init__(self, message: str, *, code: str = "") -> None:
        self.code = code
        super().__init__(message)


class NodeClassNotReady(AwsError):
    """An EC2NodeClass cannot be launched from; `code` holds the condition's reason (AMINotFound, …)."""


class AwsThrottled(AwsError):
    """The service asked to slow down."""


class AwsUnavailable(AwsError):
    """The request did not count, for example because the credentials ran out; the same one is worth another try."""
