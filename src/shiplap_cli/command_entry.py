"""A line of the list of commands."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class CommandEntry(msgspec.Struct, frozen=True):
    """A command of the list.

    `function` is its module below `shiplap_cli.commands` and its function, `plan.plan:plan`; empty for a mere group.
    `asks_aws` gives it `--profile` and `--region`. `wheel_extra` is the extra of the wheel with its packages.
    `answers` are the types of what it prints with `-o json`, one or the other: of its module, or `MODULE:TYPE` of a
    module beside it or of another package.
    """

    summary: str
    function: str = ""
    inner: Mapping[str, CommandEntry] = {}
    asks_aws: bool = True
    wheel_extra: str = "lab"
    answers: str = ""
