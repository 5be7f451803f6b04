"""The command: finds the deployment, runs every check, prints what was found."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from shiplap.errors import AwsError, ClusterGone, InvalidInput
from shiplap_cdk.shipped_files import shipped
from shiplap_cli.installs.find_install import STACK, Dev, Stack, aws_client
from shiplap_cli.output import Format, Output, emit, plain_table

_RBAC = shipped("docs/rbac.yaml")

_NOT_EMULATED = frozenset({"quotas", "cluster", "node role", "rbac"})
"""Checks of which `shiplap lab dev` has nothing: its account knows neither quotas nor EKS, its clusters check no
rights."""

_STYLES = {"ok": "green", "warning": "yellow", "failed": "bold red", "unknown": "magenta"}


def doctor(
    *,
    stack: Stack = STACK,
    cluster: Annotated[str, typer.Option(help="Only this cluster.")] = "",
    context: Annotated[
        str, typer.Option(help="Context of the kubeconfig to ask --cluster by; an EKS token of yours without.")
    ] = "",
    kubeconfig: Annotated[Path | None, typer.Option(help="The kubeconfig of --context.")] = None,
    rbac: Annotated[Path, typer.Option(help="The RBAC manifest to compare clusters with.")] = _RBAC,
    myself: Annotated[
        bool, typer.Option("--as-self", help="Compare RBAC for who runs this, not for the functions' group.")
    ] = False,
    before_deploy: Annotated[
        bool,
        typer.Option("--before-deploy", help="What the account and clusters lack for a shiplap.yaml; no stack yet."),
    ] = False,
    settings: Annotated[Path, typer.Option(help="The file that --before-deploy reads.")] = Path("shiplap.yaml"),
    dev: Dev = False,
    output: Output = Format.TABLE,
) -> int:
    """Checks a deployment from the outside and says how to fix each problem. Nothing is changed.

    Exit code 0 when nothing failed, 1 when something failed or could not be looked at, 2 for bad input.

    With --before-deploy it looks at what a first deployment needs: bootstrap, permissions boundary, authentication
    mode, ingress, endpoints, quotas, encryption keys, service-linked roles, node roles, audit logs and IPv6 addresses,
    as shiplap.yaml and its manifests ask for them.

    Example: shiplap doctor --cluster prod --context prod
    """
    if context and not cluster:
        raise InvalidInput("--context", "a context is of one cluster: name it with --cluster")
    if dev:
        from shiplap_lab.dev.dev_session import find_session  # noqa: PLC0415 - not for those who ask a live install

        os.environ.update(find_session().environment)
    from shiplap_cli.commands.doctor import check_results  # noqa: PLC0415 - so that --help does not wait for botocore
    from shiplap_cli.commands.doctor.check_results import CheckVerdict  # noqa: PLC0415

    entering = partial(_cluster_asker, context=context, kubeconfig=kubeconfig)
    if before_deploy:
        checks = _checks_before_deploy(settings)
    else:
        checks = install_checks(
            stack, cluster, rbac, myself=myself, entering=entering, now=time.time, settings=_deployed_settings
        )
        if dev:
            checks = (check for check in checks if check.name not in _NOT_EMULATED)
    results = tuple(check_results.run_checks(checks))
    emit(check_results.doctor_document(results), output, lambda: _table(results))
    return 1 if any(result.verdict in (CheckVerdict.FAILED, CheckVerdict.UNKNOWN) for result in results) else 0


def _checks_before_deploy(settings: Path) -> Iterable[Any]:
    """Every check before there is a stack. Raises InvalidInput, InvalidManifests."""
    from shiplap_cli.commands.doctor.check_results import Check  # noqa: PLC0415
    from shiplap_cli.commands.doctor.prerequisites import app, prerequisite_checks, read_planned_install  # noqa: PLC0415

    plan = read_planned_install(settings)
    yield Check("app", lambda: app(Path()))
    yield from prerequisite_checks(clients(plan.region), plan, time.time())


def install_checks(
    stack: str,
    only: str,
    manifest: Path,
    *,
    myself: bool,
    entering: Callable[[str, str], Any],
    client: Callable[[str], Any] | None = None,
    now: Callable[[], float],
    settings: Callable[[Any, Any], Any] | None = None,
) -> Iterable[Any]:
    """Every check of an install, in the order of what depends on what.

    `settings` reads the settings of a deployment; without it no optional feature is known to be on.

    Raises:
        InvalidInput: there is no such stack, the stack is not Shiplap's, or the RBAC manifest cannot be read.
        AwsError: CloudFormation does not answer.
    """
    from shiplap_cli.commands.doctor import account_checks, cluster_checks, identity_checks  # noqa: PLC0415
    from shiplap_cli.commands.doctor.check_results import Check, Deployment  # noqa: PLC0415

    aws = client or clients()
    rights = cluster_checks.permissions_of(manifest)
    region = aws("cloudformation").meta.region_name
    outputs = outputs_of(aws, stack)
    stack_only = Deployment(stack, region, outputs, ())
    yield Check("credentials", lambda: account_checks.credentials(aws, stack_only, now()))
    yield Check("stack", lambda: account_checks.stack(aws, stack_only))
    statuses: list[Any] = []

    def inspect() -> Iterable[Any]:
        statuses.extend(
            status
            for status in cluster_checks.inspected_clusters(aws("s3"), outputs["Bucket"])
            if only in ("", status.cluster)
        )
        return cluster_checks.node_classes(statuses, now())

    yield Check("node classes", inspect)
    names = tuple(dict.fromkeys([item.cluster for item in statuses] + ([only] if only else [])))
    deployment = Deployment(stack, region, outputs, names)
    yield Check("functions", lambda: account_checks.functions(aws, deployment))
    yield Check("event sources", lambda: account_checks.event_sources(aws, deployment))
    yield Check("queues", lambda: account_checks.queues(aws, deployment))
    for catalog_region in sorted({item.region for item in statuses} or {region}):
        yield Check("catalogue", partial(cluster_checks.catalogue, aws("s3"), deployment, catalog_region, now()))
        kept = (aws("s3"), outputs["Bucket"], catalog_region, now())
        yield Check("kept identities", partial(identity_checks.kept_identities, *kept))
    yield Check("quotas", lambda: account_checks.quotas(aws, deployment))
    yield Check("network", lambda: account_checks.network(aws, deployment))
    for name in names:
        yield Check("cluster", partial(cluster_checks.control_plane, aws, deployment, name))
        known = [item for item in statuses if item.cluster == name]
        yield Check("node role", partial(cluster_checks.node_access_entries, aws, known))
        yield Check("installs", partial(account_checks.other_installs, aws, deployment, name))
        yield Check("audit log", partial(cluster_checks.audit_logs, aws, deployment, name))
        live: list[Any] = []

        def read(name: str = name, live: list[Any] = live) -> Iterable[Any]:
            live.append(cluster_checks.manifests_read(aws("s3"), outputs["Bucket"], name))
            return cluster_checks.live_manifests(live[0], name)

        yield Check("manifests", read)
        more = manifest.parent / cluster_checks.LIVE_RBAC
        wanted = (*rights, *(cluster_checks.permissions_of(more) if live and live[0].observed else ()))
        of_features = partial(_manifests_of_features, settings, aws, deployment, name)
        yield Check("rbac", partial(_rbac, entering, name, region, wanted, manifest.parent, of_features, myself=myself))


def _deployed_settings(aws: Callable[[str], Any], deployment: Any) -> Any:
    """The settings that functions were deployed with. Raises AwsError."""
    from shiplap.aws.ec2_errors import aws_errors  # noqa: PLC0415 - so that --help does not wait for botocore
    from shiplap_cli.installs.installed import settings_in_layers  # noqa: PLC0415

    function = deployment.function(f"schedule{deployment.networks[0]}")
    with aws_errors(f"look up the layers of {function}"):
        answer = aws("lambda").get_function_configuration(FunctionName=function, Qualifier="live")
    return settings_in_layers(aws("lambda"), function, answer.get("Layers", ()))


def _manifests_of_features(
    settings: Callable[[Any, Any], Any] | None, aws: Callable[[str], Any], deployment: Any, cluster: str
) -> list[str]:
    """The RBAC manifests that a cluster needs for its optional features. Raises AwsError."""
    from shiplap_cdk.policy_document import documents  # noqa: PLC0415 - as above

    if settings is None:
        return []
    clusters = settings(aws, deployment).clusters
    on = {policy for item in clusters if item.name == cluster for policy in item.policies_on}
    return [document.rbac for name, document in documents() if document.rbac and name in on]


def _rbac(
    entering: Callable[[str, str], Any],
    name: str,
    region: str,
    rights: Sequence[Any],
    folder: Path,
    of_features: Callable[[], Sequence[str]],
    *,
    myself: bool,
) -> Iterable[Any]:
    from shiplap_cli.commands.doctor import cluster_checks  # noqa: PLC0415
    from shiplap_cli.commands.doctor.check_results import CheckReporter  # noqa: PLC0415
    from shiplap_cli.commands.doctor.fixes import by_hand  # noqa: PLC0415

    try:
        ask = entering(name, region)
    except ClusterGone:
        says = "is outside of EKS, so it was not asked"
        yield CheckReporter("rbac").warning(name, says, by_hand(f"shiplap doctor --cluster {name} --context CONTEXT"))
        return
    yield from cluster_checks.rbac(ask, name, rights, myself=myself)
    for file in of_features():
        more = cluster_checks.permissions_of(folder / file)
        yield from cluster_checks.rbac(ask, name, more, myself=myself, manifest=file)


def clients(region: str = "") -> Callable[[str], Any]:
    """Clients of this process's account, made when they are first used; making one raises AwsError.

    Without a region they are of the process's own.
    """
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - so that --help does not wait for it

    known: dict[str, Any] = {}

    def client(service: str) -> Any:
        if service not in known:
            try:
                known[service] = aws_client(service, region)
            except BotoCoreError as error:  # no region, no such profile
                raise AwsError(f"AWS cannot be asked: {error}") from error
        return known[service]

    return client


def outputs_of(client: Callable[[str], Any], stack: str) -> Mapping[str, str]:
    """The outputs of a stack that is Shiplap's. Raises InvalidInput, AwsError."""
    from shiplap_cli.installs.stack_outputs import no_stack, stack_outputs  # noqa: PLC0415 - botocore

    outputs = stack_outputs(client("cloudformation"), stack)
    if outputs is None:
        raise no_stack(stack)
    if "Bucket" not in outputs or not any(re.fullmatch("Schedule.*Function", name) for name in outputs):
        raise InvalidInput("--stack", f"stack {stack!r} is not an install of Shiplap")
    return outputs


def _cluster_asker(cluster: str, region: str, *, context: str, kubeconfig: Path | None) -> Callable[[str, Any], bytes]:
    """A way to ask a cluster's API server. Raises InvalidInput, ClusterError, AwsError."""
    from shiplap.cluster.kubeconfig import load  # noqa: PLC0415
    from shiplap_cli.inputs.context_access import enter_context  # noqa: PLC0415

    if context or kubeconfig is not None:
        access = load(kubeconfig, context, environment=os.environ, home=Path.home())
        transport = enter_context(access, clock=time.time, environment=os.environ, sleep=time.sleep)
        return transport.ask
    from shiplap.aws.eks import api_server  # noqa: PLC0415
    from shiplap.aws.session import client, credentials  # noqa: PLC0415
    from shiplap.cluster.connect import ApiEndpoint, endpoint_transport  # noqa: PLC0415
    from shiplap.settings import ClusterSettings  # noqa: PLC0415

    settings = ClusterSettings(name=cluster, region=region)
    endpoint = ApiEndpoint(*api_server(settings, lambda: client("eks", region)))
    return endpoint_transport(settings, endpoint, credentials=credentials, clock=_Clock(), sleep=time.sleep).ask


class _Clock:
    def now(self) -> float:
        return time.time()


def _table(results: Sequence[Any]) -> Table:
    rows = (
        (
            Text(str(item.verdict), style=_STYLES[item.verdict]),
            item.check,
            *map(Text, (item.subject, item.says, item.fix)),
        )
        for item in results
    )
    return plain_table("", "check", "what", "found", "fix", rows=rows)
