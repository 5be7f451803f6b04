"""What `shiplap disrupt` says of pods that move by restarts."""

from __future__ import annotations

import pytest

from shiplap.policies.rollouts.rollouts_input import MovedPod, RolloutsInUse
from shiplap_cli.policy_views import disruption_lines


def test_each_pod_has_its_line() -> None:
    moved = (
        MovedPod("shop/api-1", "n1", "Deployment shop/api", 900.0, evicts=True),
        MovedPod(
            "shop/web-1",
            "n2",
            "Deployment shop/web",
            60.0,
            problem="Deployment shop/web is not restarted, it is paused",
        ),
    )
    title, *lines = disruption_lines([RolloutsInUse(moved)])
    assert title.endswith("if their node leaves:")
    assert lines == [
        "  shop/api-1 on n1: Deployment shop/api is restarted; after 900 s it is evicted",
        "  shop/web-1 on n2: Deployment shop/web is not restarted, it is paused; it stays until then",
    ]


@pytest.mark.parametrize(("others", "told"), [(4, "  … and 5 more"), (0, "  … and 1 more"), (-1, "")])
def test_many_are_counted(others: int, told: str) -> None:
    moved = tuple(MovedPod(f"shop/web-{number}", "n1", "Deployment shop/web", 60.0) for number in range(21 + others))
    _, *lines = disruption_lines([RolloutsInUse(moved)])
    assert lines[20:] == ([told] if told else [])
    assert list(disruption_lines([])) == []
