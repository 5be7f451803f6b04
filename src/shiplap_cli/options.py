"""The options that several commands share, each written once: what a decision is made on, and how it is made.

A command takes them all by `@takes_sources`, which gives it the options of `Sources` in the place of its parameter
`sources`; its other parameters stay options of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
import typer

from shiplap.settings import IMPROVE_S
from shiplap_cli.output import FURTHER

Answer = TypeVar("Answer")


Context = Annotated[str, typer.Option(help="A context of the kubeconfig; the current one without.")]
Kubeconfig = Annotated[
    Path | None, typer.Option(help="$KUBECONFIG or ~/.kube/config without.", rich_help_panel=FURTHER)
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before anything changes.")]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Base of options that several commands share, with their help texts as Typer takes them."""


class Sources(Options, frozen=True, kw_only=True):
    """The inputs of a decision and its manner, as given on a command line. The help texts are those of the options."""

    cluster_state: Annotated[
        list[Path] | None,
        typer.Option(
            "--cluster-state",
            "-f",
            help="Kubernetes objects as YAML or JSON: files, folders, or - for standard input.",
        ),
    ] = None
    scale: Annotated[
        list[str] | None,
        typer.Option(
            "--scale",
            help="What if: a workload of the cluster state wants so many pods, as web=20 or job/batch/import=3.",
            metavar="NAME=NUMBER",
            rich_help_panel=FURTHER,
        ),
    ] = None
    context: Annotated[str, typer.Option("--context", help="Ask this cluster: a context of the kubeconfig.")] = ""
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            help="Ask the current context of this file; $KUBECONFIG or ~/.kube/config without.",
            rich_help_panel=FURTHER,
        ),
    ] = None
    manifests: Annotated[
        list[Path] | None,
        typer.Option(
            "--manifests",
            help="NodePools, EC2NodeClasses, NodeOverlays: files or folders. Without it, those of the cluster state.",
        ),
    ] = None
    catalog: Annotated[
        Path | None,
        typer.Option(
            "--catalog",
            help="Instance types to plan with instead of EC2's; figures are taken as given.",
            rich_help_panel=FURTHER,
        ),
    ] = None
    aws: Annotated[
        bool | None,
        typer.Option(
            "--aws/--no-aws",
            help="Ask AWS for types, prices, AMIs and subnets, or plan with the embedded catalogue. Without either, "
            "AWS is asked for a live cluster where there are credentials.",
            show_default=False,
        ),
    ] = None
    capacity: Annotated[
        Path | None,
        typer.Option(
            "--capacity",
            help="Learned capacity, as `shiplap capacity export` writes it.",
            rich_help_panel=FURTHER,
        ),
    ] = None
    region: Annotated[
        str,
        typer.Option(
            "--region",
            help="Region of prices and zones; that of the nodes without, else us-east-1.",
            show_default=False,
            rich_help_panel=FURTHER,
        ),
    ] = ""
    vm_memory_overhead_percent: Annotated[
        float,
        typer.Option(
            "--vm-memory-overhead-percent",
            min=0,
            max=1,
            help="Share of memory the hypervisor keeps, as a fraction.",
            rich_help_panel=FURTHER,
        ),
    ] = 0.075
    reserved_enis: Annotated[
        int,
        typer.Option(
            "--reserved-enis", min=0, help="Network interfaces that pods cannot use.", rich_help_panel=FURTHER
        ),
    ] = 0
    prefix_delegation: Annotated[
        str,
        typer.Option(
            "--prefix-delegation",
            help="auto (as the VPC CNI's DaemonSet says), on or off.",
            rich_help_panel=FURTHER,
        ),
    ] = "auto"
    now: Annotated[
        str | None,
        typer.Option("--now", help="Decide as of this time (RFC 3339); the clock's without.", rich_help_panel=FURTHER),
    ] = None
    min_values_policy: Annotated[
        str, typer.Option("--min-values-policy", help="Strict or BestEffort.", rich_help_panel=FURTHER)
    ] = "Strict"
    preference_policy: Annotated[
        str,
        typer.Option(
            "--preference-policy",
            help="Respect (preferences bind until a pod cannot be placed) or Ignore.",
            rich_help_panel=FURTHER,
        ),
    ] = "Respect"
    scheduler_config: Annotated[
        Path | None,
        typer.Option(
            "--scheduler-config",
            help="Default spread constraints (podTopologySpread), as kube-scheduler has them.",
            rich_help_panel=FURTHER,
        ),
    ] = None
    claim_rules: Annotated[
        Path | None,
        typer.Option(
            "--claim-rules",
            help="Which pods are Shiplap's (claimRules, as in shiplap.yaml); every pod without.",
            rich_help_panel=FURTHER,
        ),
    ] = None
    improve_seconds: Annotated[
        float,
        typer.Option(
            "--improve-seconds",
            min=0,
            max=60,
            help="Effort spent on cheaper nodes; 0 for the first plan only.",
            rich_help_panel=FURTHER,
        ),
    ] = IMPROVE_S


def takes_sources(command: Callable[..., Answer]) -> Callable[..., Answer]:
    """The command with the fields of `Options` as options, in the place of its parameters that are such structs.

    Typer reads options from a signature, so that of the command is given the fields with their help.
    """
    own = inspect.signature(command)
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if isinstance(kind, type) and issubclass(kind, Options)}
    parameters = []
    for parameter in own.parameters.values():
        if parameter.name in groups:
            group = groups[parameter.name]
            shared, defaults = get_type_hints(group, include_extras=True), inspect.signature(group).parameters
            parameters += [defaults[name].replace(annotation=shared[name]) for name in group.__struct_fields__]
        else:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))
    parameters.sort(key=lambda parameter: parameter.kind)

    @wraps(command)
    def taking(*args: Any, **given: Any) -> Answer:
        for name, group in groups.items():
            given[name] = group(**{field: given.pop(field) for field in group.__struct_fields__ if field in given})
        return command(*args, **given)

    taking.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]  # what Typer looks at
    taking.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": hints.get("return")}
    return taking
