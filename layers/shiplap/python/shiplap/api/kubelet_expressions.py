"""Where an EC2NodeClass may hold an expression instead of a number, and what expressions there can refer to."""

from __future__ import annotations

from shiplap.api.expressions import Expression, Type, parse
from shiplap.kubernetes.quantity import parse_quantity

VARIABLES = {
    "vcpus": Type.INT,
    "memory_mib": Type.INT,
    "default_enis": Type.INT,
    "ips_per_eni": Type.INT,
    "max_pods": Type.INT,
    "instance_type": Type.STRING,
}
"""Of the instance type; `max_pods` is the default number of pods in `maxPods`, and the number in force elsewhere."""

SECTIONS = ("kubeReserved", "systemReserved", "evictionHard", "evictionSoft")
"""Maps whose values may be expressions; besides them `maxPods` may be one."""


def is_expression(text: object) -> bool:
    """Whether a value is neither a quantity nor a percentage. A percentage is read where it may stand."""
    if not isinstance(text, str) or text.endswith("%"):
        return False
    try:
        parse_quantity(text)
    except ValueError:
        return True
    return False


def read(text: str) -> Expression:
    """An expression that comes to a number.

    Raises:
        ValueError: it cannot be read, or comes to something else.
    """
    try:
        made = parse(text, VARIABLES)
    except ValueError as error:
        raise ValueError(f"{text!r} is neither a quantity nor a valid expression: {error}") from error
    if made.type not in (Type.INT, Type.DOUBLE):
        raise ValueError(f"the expression {text!r} must come to a number, comes to {made.type}")
    return made
