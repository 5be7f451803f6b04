"""The one way to user data: by family, within EC2's limit of size."""

from __future__ import annotations

from collections.abc import Callable

from shiplap.aws.userdata import al2, al2023, bottlerocket, windows
from shiplap.aws.userdata.bootstrap import Bootstrap
from shiplap.errors import NodeClassNotReady
from shiplap.manifests.validation.user_data_rules import LIMIT_BYTES


def _custom(wanted: Bootstrap) -> str:
    """Nothing is added: such images join the cluster by their own means."""
    return wanted.custom


_RENDER: dict[str, Callable[[Bootstrap], str]] = {
    "AL2": al2.render,
    "AL2023": al2023.render,
    "Bottlerocket": bottlerocket.render,
    "Windows2019": windows.render,
    "Windows2022": windows.render,
    "Windows2025": windows.render,
    "Custom": _custom,
}


def user_data(wanted: Bootstrap) -> str:
    """User data as text. It is never put into a message: users keep secrets in it.

    Raises:
        NodeClassNotReady: the user's part cannot be merged, or the whole is larger than EC2 takes.
    """
    text = _RENDER[wanted.family](wanted)
    size = len(text.encode())
    if size > LIMIT_BYTES:
        raise NodeClassNotReady(
            f"user data is {size} bytes, EC2 takes {LIMIT_BYTES}: shorten spec.userData or the labels and taints",
            code="UserDataSizeLimitExceeded",
        )
    return text
