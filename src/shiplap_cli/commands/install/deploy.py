"""`shiplap install deploy`: the installs of a description by the CDK, in waves, with a stop at the first alarm."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from shiplap.errors import AwsError, InvalidInput
from shiplap.manifests.files.described_installs import DescribedInstall, read_installs
from shiplap.manifests.files.documents import read_documents
from shiplap_cli.commands.install.waves import DeploymentOutcome, InstallDeployment, deploy_in_waves
from shiplap_cli.output import Format, Output, Printed, emit, note, plain_table


class DeploymentCommand(Printed, frozen=True):
    """The command that would deploy an install."""

    wave: int
    install: str
    command: str


_STDERR = 2
_COMMAND = "npx aws-cdk deploy --require-approval never --ci"


PlannedDeployments = tuple[DeploymentCommand, ...]
DoneDeployments = tuple[InstallDeployment, ...]


def deploy(
    installs: Annotated[Path, typer.Option("-f", "--installs", help="YAML with `installs:`.")] = Path("installs.yaml"),
    *,
    from_wave: Annotated[int, typer.Option(help="Leave out the waves before this one.", min=1)] = 1,
    only: Annotated[list[str] | None, typer.Option(help="Only the install of this name.")] = None,
    rest_seconds: Annotated[int, typer.Option(help="How long the alarms are watched after each wave.", min=0)] = 600,
    command: Annotated[
        str, typer.Option(help="What deploys an install; `-c settings=PATH` and `--profile` are added.")
    ] = _COMMAND,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the commands, wave by wave.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Deploy the installs of a fleet wave by wave, and stop at the first failure or alarm.

    Installs of a wave are deployed one after the other. Then the alarms of everything that was deployed are watched for
    --rest-seconds. An install that is in alarm already is not deployed. What stopped a run is named, and --from-wave
    goes on there. Permissions change without a question: have the change reviewed before, for example by `cdk diff`.

    Exit code 0 when everything is deployed and quiet, 1 when it stopped.

    Example: shiplap install deploy --installs installs.yaml --dry-run
    """
    chosen, program = _chosen(installs, from_wave, only or []), _words(command)
    lines = {item.name: _command_line(item, installs.parent, program) for item in chosen}
    if dry_run:
        planned = [DeploymentCommand(item.wave, item.name, shlex.join(lines[item.name])) for item in chosen]
        emit(planned, output, lambda: Text("\n".join(f"wave {item.wave}: {item.command}" for item in planned)))
        return 0
    alarms = _alarms_of(installs.parent)
    done = deploy_in_waves(
        chosen, lambda item: _run(item.name, lines[item.name]), alarms, time.sleep, float(rest_seconds)
    )
    emit(done, output, lambda: _table(done))
    return 0 if all(item.outcome is DeploymentOutcome.DEPLOYED for item in done) else 1


def _chosen(path: Path, from_wave: int, names: Sequence[str]) -> tuple[DescribedInstall, ...]:
    """Raises InvalidInput, InvalidManifests."""
    if not path.exists():
        raise InvalidInput(str(path), "does not exist; docs/how-to/fleet.md shows what it says")
    found = read_installs(path)
    unknown = set(names) - {item.name for item in found}
    if unknown:
        raise InvalidInput("--only", f"there is no install {min(unknown)}")
    chosen = tuple(item for item in found if item.wave >= from_wave and (not names or item.name in names))
    for item in chosen:
        if not item.settings:
            raise InvalidInput(str(path), f"install {item.name} has no `settings`, from which it could be deployed")
    if not chosen:
        raise InvalidInput("--from-wave", f"there is no install from wave {from_wave} on")
    return chosen


def _words(command: str) -> list[str]:
    """Raises InvalidInput."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidInput("--command", f"is no command line: {error}") from error
    if not words:
        raise InvalidInput("--command", "is empty; without it `npx aws-cdk deploy` is run")
    return words


def _command_line(install: DescribedInstall, folder: Path, program: Sequence[str]) -> list[str]:
    profile = ["--profile", install.profile] if install.profile else []
    return [*program, "-c", f"settings={folder / install.settings}", *profile]


def _run(name: str, command: Sequence[str]) -> str:
    """Run a deployment, which speaks on stderr; returns why it failed."""
    note(f"{name}: {shlex.join(command)}\n")
    try:
        code = subprocess.run(command, check=False, stdout=_STDERR).returncode  # noqa: S603 - the user's own command
    except OSError as error:
        return f"{command[0]} cannot be run: {error.strerror}"
    return f"{command[0]} ended with exit code {code}" if code else ""


def _alarms_of(folder: Path) -> Callable[[DescribedInstall], Sequence[str]]:
    """Reads the alarms of an install, whose names begin with the name in its settings."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - so that --help does not wait for it

    from shiplap_cli.commands.status.fleet_reading import AwsClients  # noqa: PLC0415 - as above
    from shiplap_cli.installs.ringing_alarms import ringing_alarms  # noqa: PLC0415 - as above

    clients = AwsClients()

    def alarms(install: DescribedInstall) -> Sequence[str]:
        name = read_documents(folder / install.settings)[0].data.get("name", "shiplap")
        try:
            of_install = clients.of(install)
            return ringing_alarms(of_install.cloudformation, of_install.cloudwatch, install.stack, str(name))
        except (AwsError, BotoCoreError, ClientError) as error:
            return (f"its alarms cannot be read: {error}",)

    return alarms


def _table(done: Sequence[InstallDeployment]) -> Table:
    rows = [(str(item.wave), item.install, item.outcome.value, "; ".join(item.reasons)) for item in done]
    return plain_table("wave", "install", "", "why", rows=rows)
