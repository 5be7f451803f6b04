"""`--profile` and `--region`, which every command has that may ask AWS."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from shiplap_cli.output import FURTHER

_PROFILE = Annotated[
    str,
    typer.Option(
        "--profile", help="A profile of the AWS configuration; $AWS_PROFILE without.", rich_help_panel=FURTHER
    ),
]
_REGION = Annotated[
    str,
    typer.Option(help="Region of AWS; $AWS_REGION or the profile's without.", rich_help_panel=FURTHER),
]


def asking_aws(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with both options, unless it has them; while it runs, AWS's variables have their values.

    What asks AWS reads these variables: botocore, and the programs by which a kubeconfig gets a token.
    """
    own, hints = inspect.signature(command), get_type_hints(command, include_extras=True)
    added = {"region": _REGION, "profile": _PROFILE}
    missing = {name: kind for name, kind in added.items() if name not in own.parameters}
    parameters = [
        *(parameter.replace(annotation=hints[parameter.name]) for parameter in own.parameters.values()),
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default="", annotation=kind)
            for name, kind in missing.items()
        ),
    ]

    @wraps(command)
    def asking(*args: Any, **given: Any) -> Any:
        chosen = {name: str(given.get(name) or "") for name in added}
        for name in missing:
            given.pop(name, None)
        with _environment(_variables(**chosen)):
            return command(*args, **given)

    asking.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]  # what Typer looks at
    asking.__annotations__ = {item.name: item.annotation for item in parameters} | {"return": hints.get("return")}
    return asking


def _variables(*, region: str, profile: str) -> dict[str, str]:
    values = {"AWS_PROFILE": profile, "AWS_REGION": region, "AWS_DEFAULT_REGION": region}
    return {name: value for name, value in values.items() if value}


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables of the environment, and clients that are made in it."""
    if not variables:
        yield
        return
    from shiplap.aws.session import forget_clients  # noqa: PLC0415 - only where AWS may be asked

    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    forget_clients()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        forget_clients()
