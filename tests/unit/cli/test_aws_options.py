"""`--profile` and `--region` of every command that may ask AWS."""

from __future__ import annotations

import os
from typing import Annotated

import pytest
import typer

from shiplap.aws import session
from shiplap_cli.aws_options import asking_aws
from tests.commands import Shiplap
from tools.command_reference import commands

VARIABLES = ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION")
NEVER_ASK = (
    "explain instance-types",
    "install chart",
    "install template",
    "install terraform",
    "lab dev",
    "lab simulate",
    "validate",
)


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")


def test_every_command_that_may_ask_has_both() -> None:
    for command in commands():
        names = {name for parameter in command.parameters for name in parameter.names}
        asks = command.name not in NEVER_ASK
        assert ({"--profile", "--region"} <= names) is asks or command.name == "explain instance-types", command.name
        assert ("--profile" in names) is asks, command.name


def seen() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in VARIABLES}


def call(command: object, *arguments: str) -> None:
    application = typer.Typer(add_completion=False)
    application.command()(asking_aws(command))  # type: ignore[arg-type]
    application(args=list(arguments), standalone_mode=False)


def test_while_a_command_runs_the_variables_have_its_options() -> None:
    found: list[dict[str, str | None]] = []

    def command() -> None:
        found.append(seen())

    before = seen()
    call(command)
    call(command, "--profile", "platform")
    call(command, "--region", "us-east-2")
    assert found == [
        before,
        {"AWS_PROFILE": "platform", "AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": None},
        {"AWS_PROFILE": None, "AWS_REGION": "us-east-2", "AWS_DEFAULT_REGION": "us-east-2"},
    ]
    assert seen() == before


def test_a_region_of_the_commands_own_counts_and_is_handed_on() -> None:
    found: list[tuple[str, str | None]] = []

    def command(*, region: Annotated[str, typer.Option("--region", help="Its own.")] = "") -> None:
        found.append((region, os.environ.get("AWS_REGION")))

    call(command, "--region", "us-east-2")
    call(command)
    assert found == [("us-east-2", "us-east-2"), ("", "eu-west-1")]


def test_what_goes_wrong_leaves_the_environment_as_it_was() -> None:
    def command() -> None:
        raise ValueError("no")

    before = seen()
    with pytest.raises(ValueError, match="no"):
        call(command, "--profile", "platform")
    assert seen() == before


def test_clients_are_made_anew_for_another_profile() -> None:
    found: list[object] = []

    def command() -> None:
        found.append(session.session())

    call(command)
    call(command, "--profile", "platform")
    call(command)
    assert len({id(item) for item in found}) == 3


def test_a_profile_that_is_not_there_is_said(shiplap: Shiplap) -> None:
    assert "profile" in shiplap.error("status", "--profile", "not-there")
