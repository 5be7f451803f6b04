"""Results of checks, and how checks run: each on its own, so that a missing permission costs one answer, not all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from shiplap.aws.failures import FAILURES, code_of
from shiplap.errors import ClusterDenied, ClusterError, InvalidInput, ShiplapError
from shiplap_cli.commands.doctor.fixes import Fix, by_hand
from shiplap_cli.hints import remedy, says_nobody_can_ask
from shiplap_cli.installs.find_install import install_name
from shiplap_cli.output import Printed

Client = Callable[[str], Any]
"""A client of an AWS service, by the service's name."""

_DENIED = re.compile(r"AccessDenied|UnauthorizedOperation|AuthorizationError|Forbidden|AccessDeniedException")
_LONGEST = 300
"""Characters of AWS's words that a finding repeats: a proxy may answer with a whole page."""
_ACTION = re.compile(r"not authorized to perform: (?P<action>[\w-]+:\w+)")


class CheckVerdict(StrEnum):
    """`unknown`: it could not be looked at."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


class CheckResult(Printed, frozen=True):
    """The result for one subject.

    `mend` on the wire is the fix, empty when nothing is wrong; `commands` are those in it, empty where a person has to
    act.
    """

    check: str
    subject: str
    verdict: CheckVerdict
    says: str
    fix: str = msgspec.field(default="", name="mend")
    commands: tuple[str, ...] = ()


class VerdictCounts(msgspec.Struct, frozen=True):
    """The number of results of each verdict."""

    ok: int
    warning: int
    failed: int
    unknown: int


class DoctorDocument(Printed, frozen=True):
    """The output of `shiplap doctor`."""

    findings: tuple[CheckResult, ...]
    verdicts: VerdictCounts


def doctor_document(results: tuple[CheckResult, ...]) -> DoctorDocument:
    """The document of all results."""
    counts = {str(verdict): sum(item.verdict == verdict for item in results) for verdict in CheckVerdict}
    return DoctorDocument(results, VerdictCounts(**counts))


class Deployment(msgspec.Struct, frozen=True):
    """The deployed install that is checked.

    `outputs` are the stack's; `clusters` are those whose EC2NodeClasses the install has inspected; `functions` maps
    names to those in Lambda.
    """

    stack: str
    region: str
    outputs: Mapping[str, str]
    clusters: Sequence[str]

    def output(self, name: str) -> str:
        """An output of the stack. Raises InvalidInput: the stack has none of this name."""
        if name not in self.outputs:
            reason = f"has no output {name}, as one of another version of Shiplap: deploy it with this version"
            raise InvalidInput(f"stack {self.stack}", reason)
        return self.outputs[name]

    def function(self, name: str) -> str:
        """The name in Lambda of a function. Raises InvalidInput: the stack has none of this name."""
        if name not in self.functions:
            return self.output(f"{name.capitalize()}Function")
        return self.functions[name]

    @property
    def functions(self) -> dict[str, str]:
        """Names of the functions in Lambda, by their own."""
        found = {name: value for name, value in self.outputs.items() if name.endswith("Function")}
        return {name.removesuffix("Function").lower(): value for name, value in sorted(found.items())}

    @property
    def networks(self) -> tuple[str, ...]:
        """Names of the networks that have functions of their own, sorted; the one without a name is empty."""
        return tuple(name.removeprefix("schedule") for name in self.functions if name.startswith("schedule"))

    @property
    def install(self) -> str:
        """The install's name, which all its functions' names begin with."""
        return install_name(self.outputs)


class Check(msgspec.Struct, frozen=True):
    """A check by name. `look` may raise what AWS, a store or a cluster refuses with."""

    name: str
    look: Callable[[], Iterable[CheckResult]]


class CheckReporter:
    """Makes the results of one check."""

    def __init__(self, check: str) -> None:
        self._check = check

    def ok(self, subject: str, says: str) -> CheckResult:
        return CheckResult(self._check, subject, CheckVerdict.OK, says)

    def warning(self, subject: str, says: str, fix: Fix) -> CheckResult:
        return self._wrong(subject, CheckVerdict.WARNING, says, fix)

    def failed(self, subject: str, says: str, fix: Fix) -> CheckResult:
        return self._wrong(subject, CheckVerdict.FAILED, says, fix)

    def unknown(self, subject: str, says: str, fix: Fix) -> CheckResult:
        return self._wrong(subject, CheckVerdict.UNKNOWN, says, fix)

    def _wrong(self, subject: str, verdict: CheckVerdict, says: str, fix: Fix) -> CheckResult:
        return CheckResult(self._check, subject, verdict, says, fix.says, fix.commands)


def run_checks(checks: Iterable[Check]) -> Iterator[CheckResult]:
    """Every result of every check; an error that ends a check becomes a result of its own.

    Credentials that AWS answers nothing to are one result for all checks that need some.
    """
    unasked: dict[str, list[str]] = {}
    for check in checks:
        try:
            yield from check.look()
        except (*FAILURES, ShiplapError) as error:
            if says_nobody_can_ask(hint := remedy(error)):
                unasked.setdefault(hint, []).append(check.name)
            else:
                yield _failed(check.name, error) if isinstance(error, ShiplapError) else _refused(check.name, error)
    for hint, names in unasked.items():
        says, _, fix = hint.partition(": ")
        left_out = [name for name in dict.fromkeys(names) if name != "credentials"]
        told = f"{says}; not looked at: {', '.join(left_out)}" if left_out else says
        yield CheckReporter("credentials").unknown("", told, by_hand(fix))


def answer_or_none(ask: Callable[[], Any], missing: str = "ResourceNotFoundException") -> Any:
    """Return the answer of AWS; None when AWS answers with the code for something that is not there."""
    try:
        return ask()
    except ClientError as error:
        if code_of(error) != missing:
            raise
        return None


def _refused(name: str, error: Exception) -> CheckResult:
    report, said = CheckReporter(name), " ".join(str(error).split())[:_LONGEST]
    if isinstance(error, ClientError) and _DENIED.search(code_of(error)):
        named = _ACTION.search(str(error))
        action = named["action"] if named else error.operation_name
        return report.unknown(
            "", f"not permitted: {action}", by_hand(f"allow {action} to who runs this, or ask who may")
        )
    if isinstance(error, BotoCoreError):
        return report.unknown("", f"no answer: {said}", by_hand("look at the network, AWS_REGION and the credentials"))
    return report.unknown("", f"AWS refused: {said}", by_hand("look at the message; AWS's status page may know more"))


def _failed(name: str, error: ShiplapError) -> CheckResult:
    report = CheckReporter(name)
    if isinstance(error, ClusterDenied):
        return report.unknown(
            "", str(error), by_hand("this identity may not ask the cluster: use one that is a cluster admin")
        )
    if isinstance(error, ClusterError):
        return report.unknown(
            "",
            str(error),
            by_hand("run this where the API server can be reached: a private endpoint only answers inside its VPC"),
        )
    return report.unknown("", str(error), by_hand("fix what the message names and run this again"))
