"""Commitments on the command line: the account's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from shiplap_cli.policy_views import PolicyView, Unread


class CommitmentsView(PolicyView):
    """Takes an account whose commitments cannot be read for one without any."""

    unread: ClassVar[Mapping[str, Unread]] = {"commitments": Unread("commitments", "list prices count", None)}


VIEW = CommitmentsView()
