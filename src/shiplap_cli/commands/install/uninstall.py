"""`shiplap install uninstall`: ends an install step by step, and goes on where an earlier run has stopped.

Launches first, or new nodes take the place of those that end. Then the nodes, while the functions that empty them are
there; the finalizers that only those functions remove; the stack; and the data at last, which know what was running.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from shiplap.cluster.client import KubernetesClient
from shiplap.cluster.kubeconfig import load
from shiplap.cluster.transport import Transport
from shiplap.errors import ClusterError, InvalidInput, StoreError
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.ports import ClusterApi, NodeIdentities
from shiplap.settings import Settings
from shiplap_cli.commands.install.abandoned_identities import LeftIdentity
from shiplap_cli.commands.install.finalizers import ReleasedObject, held_objects, release
from shiplap_cli.commands.migrate.handover import HandoverWork, Owner, TaggedInstances
from shiplap_cli.hints import with_hint
from shiplap_cli.inputs.context_access import enter_context
from shiplap_cli.installs.find_install import STACK, DeployedInstall, Stack, aws_client, find_install
from shiplap_cli.installs.installed import settings_of
from shiplap_cli.options import Kubeconfig, Yes
from shiplap_cli.output import (
    FURTHER,
    Format,
    Output,
    Printed,
    confirm,
    counted,
    emit,
    fail,
    note,
    plain_table,
    progress,
    warning_line,
)

if TYPE_CHECKING:
    from shiplap_cli.commands.install.node_removal import NodeRemoval, RemovalClients, RunningInstance
    from shiplap_cli.commands.install.removal_record import RemovalRecord

_sleep, _now = time.sleep, time.time

_STILL_THERE = "EC2 shows instances with the tag of the install"


class LeftInstance(Printed, frozen=True):
    """An instance that EC2 still shows with the install's tag."""

    cluster: str
    node_pool: str
    instance: str
    type: str
    state: str
    claim: str


class UninstallDocument(Printed, frozen=True, omit_defaults=True, kw_only=True):
    """The remains of the install, and what the command did to it.

    `frozen_at` is when launches were frozen; `instances` are those that EC2 shows. `stack` is its status in
    CloudFormation, empty when it is gone; `identities` are instance profiles and node roles that are kept for nodes;
    `data` lists what stays: both tables and the bucket. `next` says what to do.
    """

    install: str = ""
    frozen_at: str = ""
    instances: tuple[LeftInstance, ...] = ()
    handed_over: tuple[str, ...] = ()
    objects: tuple[ReleasedObject, ...] = ()
    stack: str = ""
    identities: tuple[LeftIdentity, ...] = ()
    data: tuple[str, ...] = ()
    exported: str = ""
    problems: tuple[str, ...] = ()
    next: str = ""


class UninstallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that the user gave; see the options of `uninstall`."""

    contexts: dict[str, str]
    kubeconfig: Path | None
    to_karpenter: tuple[str, ...]
    grace_s: float
    wait_s: float
    leave_running: bool
    delete_data: str
    export: Path | None
    yes: bool


def uninstall(
    *,
    stack: Stack = STACK,
    bucket: Annotated[
        str,
        typer.Option(
            envvar="SHIPLAP_BUCKET",
            help="The install's bucket; needed once its stack is gone.",
            rich_help_panel=FURTHER,
        ),
    ] = "",
    context: Annotated[
        list[str] | None,
        typer.Option(help="CLUSTER=CONTEXT of the kubeconfig, of each cluster whose finalizers are to go."),
    ] = None,
    kubeconfig: Kubeconfig = None,
    to_karpenter: Annotated[
        list[str] | None, typer.Option(help="A cluster whose nodes Karpenter takes over, instead of a drain.")
    ] = None,
    grace_minutes: Annotated[
        float, typer.Option(min=0, help="End pods after so long whatever protects them; 0 waits for them.")
    ] = 0,
    wait_minutes: Annotated[float, typer.Option(min=0, help="How long to wait for nodes, and for the stack.")] = 60,
    leave_running: Annotated[
        bool, typer.Option("--leave-running", help="Drain nothing, and go on while instances run; they are listed.")
    ] = False,
    delete_data: Annotated[
        str, typer.Option(help="The install's name: at the end delete its tables and bucket, after an export.")
    ] = "",
    export: Annotated[Path | None, typer.Option(help="Folder for the export; NAME-export without.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what is there, and change nothing.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Let launches go on: the install stays.")] = False,
    finalizers: Annotated[
        bool,
        typer.Option(
            "--finalizers",
            help="Only remove finalizers by kubeconfig, with --context CONTEXT.",
            rich_help_panel=FURTHER,
        ),
    ] = False,
    identities: Annotated[
        bool,
        typer.Option(
            "--identities",
            help="Only end instance profiles and node roles of --install, once it is gone.",
            rich_help_panel=FURTHER,
        ),
    ] = False,
    install: Annotated[
        str,
        typer.Option(
            help="With --finalizers: of this install, where there are two. With --identities: its name.",
            rich_help_panel=FURTHER,
        ),
    ] = "",
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> int:
    """Ends an install: freezes launches, drains or hands over its nodes, removes finalizers, deletes the stack.

    It asks before each step, and goes on where an earlier run has stopped. While EC2 shows an instance with the
    install's tag it does not delete the stack. Tables and bucket stay without --delete-data. Instance profiles and node
    roles stay while an instance carries them; --identities ends them later, whatever became of stack and data.

    Exit code 0 when every step that was asked for is done, 1 when something is left, 2 for bad input.

    Example: shiplap install uninstall --dry-run
    """
    if finalizers:
        return _finalizers_only(context or [], kubeconfig, install, output, yes=yes)
    if identities:
        return _identities_only(install, output, dry_run=dry_run, yes=yes)
    options = UninstallOptions(
        contexts=_contexts(context or []),
        kubeconfig=kubeconfig,
        to_karpenter=tuple(to_karpenter or ()),
        grace_s=60 * grace_minutes,
        wait_s=60 * wait_minutes,
        leave_running=leave_running,
        delete_data=delete_data,
        export=export,
        yes=yes,
    )
    run = _Uninstall(_find(stack, bucket), stack, options)
    try:
        step = run.cancelled if cancel else run.seen if dry_run else run.all_steps
        document = step()
    except StoreError as error:
        raise InvalidInput(f"install {run.record.install}", with_hint(error)) from error
    emit(document, output, lambda: _view(document))
    return 1 if document.problems else 0


def _contexts(given: Sequence[str]) -> dict[str, str]:
    pairs = [item.partition("=") for item in given]
    for name, equals, of in pairs:
        if not (name and equals and of):
            raise InvalidInput(
                "--context", f"expected CLUSTER=CONTEXT, is {name!r}; --finalizers takes a context alone"
            )
    return {name: of for name, _, of in pairs}


def _find(stack: str, bucket: str) -> DeployedInstall:
    """By the stack while it is there, and then by the bucket. Raises AwsError, InvalidInput."""
    try:
        return find_install(bucket="", stack=stack, dev=False)
    except InvalidInput as error:
        if not bucket:
            raise InvalidInput(error.source, f"{error.reason}; once it is gone, name the --bucket") from error
        return DeployedInstall(bucket)


class _Uninstall:
    """One run of the command."""

    def __init__(self, install: DeployedInstall, stack: str, options: UninstallOptions) -> None:
        from shiplap.aws.dynamodb.capacity_table import DynamoCapacity  # noqa: PLC0415 - so that --help does not wait for botocore
        from shiplap.aws.dynamodb.state_table import DynamoState  # noqa: PLC0415 - as above
        from shiplap.aws.session import client  # noqa: PLC0415 - as above
        from shiplap_cli.commands.install.node_removal import NodeRemoval, RemovalClients, found_record, is_whole  # noqa: PLC0415 - as above

        self._options = options
        cloudformation = aws_client("cloudformation")
        whole = bool(install.outputs) and is_whole(cloudformation, stack)
        self._settings = settings_of(install) if whole else None
        self.record: RemovalRecord = found_record(install, stack, self._settings, client("s3"), aws_client("lambda"))
        self._served = {item.name: item for item in self.record.clusters}
        self._check_names()
        self._clients: RemovalClients = RemovalClients(
            cloudformation,
            aws_client("ec2", self.record.region),
            client("s3"),
            client("dynamodb"),
            DynamoState(client("dynamodb"), self.record.state_table),
            DynamoCapacity(client("dynamodb"), self.record.capacity_table),
        )
        self._nodes: NodeRemoval = NodeRemoval(self.record, self._settings, self._clients, now=_now, sleep=_sleep)
        self._objects: list[ReleasedObject] = []
        self._handed: list[str] = []
        self._identities: tuple[LeftIdentity, ...] = ()

    def _check_names(self) -> None:
        """Raises InvalidInput for a cluster that is not served, and a name of the install that is not its own."""
        options = self._options
        for name in (*options.contexts, *options.to_karpenter):
            if name not in self._served:
                raise InvalidInput("--context", f"the install serves {', '.join(self._served)}, not {name}")
        for name in options.to_karpenter:
            if not self._served[name].live_manifests or name not in options.contexts:
                raise InvalidInput("--to-karpenter", f"{name} needs `manifests: cluster`, and --context {name}=CONTEXT")
        if options.delete_data not in ("", self.record.install):
            raise InvalidInput("--delete-data", f"the install's name is {self.record.install}")

    def seen(self) -> UninstallDocument:
        """Return the state of the install, without a change."""
        return self._document(self._nodes.instances(), (), "run it without --dry-run: it asks before each step")

    def cancelled(self) -> UninstallDocument:
        """Launches go on. Raises InvalidInput: the stack is gone."""
        from shiplap_cli.commands.install.removal_record import forget_record  # noqa: PLC0415 - see above

        if self._settings is None:
            raise InvalidInput("--cancel", "the stack is deleted, or about to be: deploy it anew")
        self._clients.state.unfreeze()
        forget_record(self._clients.s3, self.record.bucket)
        next_ = "launches go on; what drains goes on draining, and pods without a node get a new one"
        return self._document(self._nodes.instances(), (), next_)

    def all_steps(self) -> UninstallDocument:
        """Every step until one cannot be finished."""
        if self._settings is not None:
            left, problems = self._end_nodes(self._settings)
            if problems:
                return self._document(left, problems, "run it again: it goes on from here")
            problems = self._remove_finalizers()
            if problems:
                return self._document(left, problems, "remove the cause, and run it again")
        else:
            left = self._nodes.instances()
            if left and not self._options.leave_running:
                return self._document(left, (_STILL_THERE,), "end them by hand, or add --leave-running")
        problems = self._delete_stack(left) or self._remove_finalizers()
        if not problems:
            self._end_identities()
        if problems or not self._options.delete_data:
            return self._document(left, problems, self._next_of_data() if not problems else "run it again")
        exported = self._delete_data()
        return msgspec.structs.replace(self._document(left, (), ""), data=(), exported=str(exported))

    def _end_nodes(self, settings: Settings) -> tuple[tuple[RunningInstance, ...], tuple[str, ...]]:
        """Freeze, hand over and drain; what is left, and what keeps the next step from being taken."""
        found = self._nodes.instances()
        _list(found)
        self._agree(f"Freeze all launches of install {self.record.install}?")
        self._nodes.freeze()
        problems = self._hand_over(settings) if self._options.to_karpenter else ()
        if problems or self._options.leave_running:
            return self._nodes.instances(), problems
        clusters = [name for name in self._served if name not in self._handed]
        if found and clusters:
            self._agree(
                f"Drain and end all nodes of {', '.join(clusters)}? Their pods stay pending without other nodes."
            )
        until = _now() + self._options.wait_s
        with progress("waiting for nodes to be empty") as say:
            left, drained = self._nodes.drain_until_empty(
                until, kept=self._handed, grace_s=self._options.grace_s, say=say
            )
        newer = [name for item in drained.values() for name in item.newer]
        launching = [name for item in drained.values() for name in item.launching]
        problems = tuple(f"{name} was written by a newer release, which alone may end it" for name in newer)
        if launching:
            problems += (f"may still get an instance: {', '.join(launching)}",)
        if left:
            problems += (
                f"{counted(len(left), 'instance')} of the install still there: the stack stays, because its functions"
                " empty them. --grace-minutes ends protected pods, --leave-running goes on without them",
            )
        return left, problems

    def _hand_over(self, settings: Settings) -> tuple[str, ...]:
        problems: list[str] = []
        for name in self._options.to_karpenter:
            instances = TaggedInstances(self._clients.ec2)
            work = HandoverWork(settings.cluster(name), self._transport(name), instances, self._clients.state, _now())
            try:
                work.require_no_karpenter()
                found = work.found(Owner.KARPENTER)
                if found.nodes:
                    self._agree(f"Hand {counted(len(found.nodes), 'node')} of {name} to Karpenter?")
                done = work.hand(found, Owner.KARPENTER)
            except ClusterError as error:
                raise InvalidInput(f"context {self._options.contexts[name]}", str(error)) from error
            failed = [f"{node.claim} stays: {node.failure}" for node in done.nodes if node.failure]
            failed += [f"{node.claim} stays: {node.reason}" for node in done.left]
            problems += failed
            if not failed:
                self._handed.append(name)
        return tuple(problems)

    def _transport(self, cluster: str) -> Transport:
        access = load(
            self._options.kubeconfig, self._options.contexts[cluster], environment=os.environ, home=Path.home()
        )
        return enter_context(access, clock=time.time, environment=os.environ, sleep=time.sleep)

    def _remove_finalizers(self) -> tuple[str, ...]:
        """Of every cluster with live manifests whose context is known; why some are left."""
        problems = []
        for name in self._options.contexts:
            try:
                cluster = KubernetesClient(self._transport(name))
                held = held_objects(cluster, self.record.install)
                if held:
                    self._agree(f"Remove the finalizers of {counted(len(held), 'object')} of {name}?")
                released = release(cluster, held)
            except ClusterError as error:
                raise InvalidInput(f"context {self._options.contexts[name]}", str(error)) from error
            self._objects += released
            problems += [
                f"{item.kind} {item.name} keeps its finalizer: {item.failure}" for item in released if item.failure
            ]
        return tuple(problems)

    def _delete_stack(self, left: Sequence[RunningInstance]) -> tuple[str, ...]:
        from shiplap_cli.commands.install.stack_deletion import delete_stack, stack_state  # noqa: PLC0415 - see above

        stack = self.record.stack
        if stack_state(self._clients.cloudformation, stack).is_gone:
            return ()
        blind = [
            name for name, item in self._served.items() if item.live_manifests and name not in self._options.contexts
        ]
        if left:
            _list(left)
        for name in blind:
            fail(f"finalizers in {name} were not looked at: --context {name}=CONTEXT")
        running = f" {counted(len(left), 'instance')} run on without Shiplap." if left else ""
        self._agree(f"Delete the stack {stack}?{running} Tables and bucket stay.")
        until = _now() + self._options.wait_s
        with progress(f"deleting stack {stack}"):
            state = delete_stack(self._clients.cloudformation, stack, now=_now, sleep=_sleep, until=until)
        if state.is_gone:
            self._settings = None
            return ()
        return (f"stack {stack} is {state.status}", *state.reasons)

    def _end_identities(self) -> None:
        """Of nodes: those that an instance carries are kept, and listed."""
        from shiplap_cli.commands.install.abandoned_identities import identities_of  # noqa: PLC0415 - see above

        found = identities_of(self.record.install, self.record.region)
        self._identities = _end_what_is_abandoned(found, self._agree)

    def _next_of_data(self) -> str:
        record = self.record
        options = f"--stack {record.stack} --bucket {record.bucket} --delete-data {record.install}"
        of_data = f"tables and bucket stay; `shiplap install uninstall {options}` exports and deletes them"
        if not self._identities:
            return of_data
        later = f"`shiplap install uninstall --identities --install {record.install}`"
        return f"{later} ends what instances carry, once they are gone; {of_data}"

    def _delete_data(self) -> Path:
        from shiplap_cli.commands.install.stored_data import delete_data, export_data  # noqa: PLC0415 - see above

        folder = self._options.export or Path(f"{self.record.install}-export")
        clients = self._clients
        with progress("exporting") as say:
            done = export_data(self.record, folder, clients.dynamodb, clients.s3, clients.capacity, _now(), say)
        items = ", ".join(f"{number} items of {table}" for table, number in done.items.items())
        self._agree(
            f"{folder} holds {items} and {done.objects} objects. Delete tables, bucket and settings layers for good?"
        )
        delete_data(self.record, folder, clients.dynamodb, clients.s3, aws_client("lambda", self.record.region))
        return folder

    def _agree(self, question: str) -> None:
        _agree(question, yes=self._options.yes)

    def _document(self, left: Sequence[RunningInstance], problems: Sequence[str], next_: str) -> UninstallDocument:
        from shiplap_cli.commands.install.stack_deletion import stack_state  # noqa: PLC0415 - see above

        record = self.record
        frozen_at = self._clients.state.frozen_at() if self._settings is not None else 0.0
        return UninstallDocument(
            install=record.install,
            frozen_at=rfc3339(frozen_at) if frozen_at else "",
            instances=tuple(LeftInstance(*msgspec.structs.astuple(item)) for item in left),
            handed_over=tuple(self._handed),
            objects=tuple(self._objects),
            stack=stack_state(self._clients.cloudformation, record.stack).status,
            identities=self._identities,
            data=(record.state_table, record.capacity_table, record.bucket),
            problems=tuple(problems),
            next=next_,
        )


def _agree(question: str, *, yes: bool) -> None:
    """Raises InvalidInput where nobody can answer, and Abort where the answer is no."""
    if not yes:
        confirm("install uninstall", question, dry_run=True)


def _end_what_is_abandoned(found: NodeIdentities, agree: Callable[[str], None]) -> tuple[LeftIdentity, ...]:
    """End identities of nodes that nothing carries; those that are left. Raises InvalidInput, AwsError, Abort."""
    from shiplap_cli.commands.install.abandoned_identities import abandoned, end_abandoned  # noqa: PLC0415 - see above

    ending = abandoned(found, _now())
    profiles, roles = counted(len(ending.profiles), "instance profile"), counted(len(ending.roles), "node role")
    if ending.profiles or ending.roles:
        agree(f"Delete {profiles} that no instance carries and {roles} of the install, and roles that only they hold?")
    return end_abandoned(found, _now())


def _identities_only(install: str, output: Format, *, dry_run: bool, yes: bool) -> int:
    """By the install's name alone: stack, tables and bucket may be gone."""
    from shiplap.aws.ec2_errors import aws_errors  # noqa: PLC0415 - see above
    from shiplap_cli.commands.install.abandoned_identities import abandoned, identities_of, left_identities  # noqa: PLC0415 - see above

    if not install:
        raise InvalidInput("--identities", "name the install with --install")
    with aws_errors("tell the Region"):
        region = str(aws_client("ec2").meta.region_name)
    found = identities_of(install, region)
    if dry_run:
        left = left_identities(abandoned(found, _now()).kept)
    else:
        left = _end_what_is_abandoned(found, lambda question: _agree(question, yes=yes))
    document = UninstallDocument(identities=left)
    emit(document, output, lambda: _view(document))
    return 1 if left else 0


def _list(found: Sequence[RunningInstance]) -> None:
    """Every instance on a line of stderr, before the question that is about them."""
    for item in found:
        where = " ".join(part for part in (item.cluster, item.node_pool, item.claim) if part)
        note(f"{item.instance} {item.type} {item.state} {where}\n")


def _view(document: UninstallDocument) -> RenderableType:
    lines: list[RenderableType] = []
    if document.instances:
        rows = [(item.instance, item.type, item.state, item.cluster, item.claim) for item in document.instances]
        lines.append(plain_table("instance", "type", "state", "cluster", "nodeclaim", rows=rows))
    if document.objects:
        objects = [(item.kind, item.name, item.instance, item.failure or "removed") for item in document.objects]
        lines.append(plain_table("kind", "name", "instance", "finalizer", rows=objects))
    if document.identities:
        kept = [(item.kind, item.name, item.cluster, item.reason) for item in document.identities]
        lines.append(plain_table("kept", "name", "cluster", "because", rows=kept))
    if not document.install:
        return Group(*lines)
    frozen = f"frozen since {document.frozen_at}" if document.frozen_at else "not frozen"
    facts = [("launches", frozen if document.stack else "nothing launches any more")]
    facts.append(("instances", str(len(document.instances))))
    facts.append(("stack", document.stack or "deleted"))
    facts.append(("data", ", ".join(document.data) or f"deleted; exported to {document.exported}"))
    lines += [Text(f"{name:<10} {text}") for name, text in facts]
    lines += [warning_line(problem) for problem in document.problems]
    if document.next:
        lines.append(Text(f"next: {document.next}"))
    return Group(*lines)


def _finalizers_only(
    contexts: Sequence[str], kubeconfig: Path | None, install: str, output: Format, *, yes: bool
) -> int:
    """By kubeconfig alone: no AWS account is asked, and the stack may be gone."""
    if len(contexts) > 1:
        raise InvalidInput("--context", "--finalizers takes one cluster at a time")
    access = load(kubeconfig, contexts[0] if contexts else "", environment=os.environ, home=Path.home())
    transport = enter_context(access, clock=time.time, environment=os.environ, sleep=time.sleep)
    cluster: ClusterApi = KubernetesClient(transport)
    try:
        held = held_objects(cluster, install)
        if held and not yes:
            instances = sorted({item.instance for item in held if item.instance})
            there = f"{len(instances)} instances are still there: {', '.join(instances)}"
            question = f"Remove the finalizers of {len(held)} objects? kubectl delete drains their nodes no more."
            confirm("install uninstall", question, [there])
        document = UninstallDocument(objects=release(cluster, held))
    except ClusterError as error:
        raise InvalidInput(f"context {access.context}", str(error)) from error
    emit(document, output, lambda: _view(document))
    return 1 if any(item.failure for item in document.objects) else 0
