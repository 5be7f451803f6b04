"""Which of many nodes go: those whose price is high for what their room is worth, not those with the fewest pods."""

from __future__ import annotations

from tests.conformance.catalogues import fake_type
from tests.conformance.disruptions import disrupted, pod, standing

PLAIN = fake_type("plain", cpu="4", memory="8Gi", pods="20", price=1.0)
ROOMY = fake_type("roomy", cpu="4", memory="32Gi", pods="20", price=1.3)


def test_dearer_nodes_of_as_much_use_go_although_more_pods_move() -> None:
    """Fifteen nodes find room on the others. A dear one saves more for each of its four CPUs, a plain one per pod."""
    plain = [standing(f"plain-{place:02}", "plain", cpu="4", memory="8Gi", pods="20") for place in range(20)]
    roomy = [standing(f"roomy-{place:02}", "roomy", cpu="4", memory="32Gi", pods="20") for place in range(20)]
    pods = [pod(f"a{place}", f"plain-{place // 2:02}", memory="1Gi") for place in range(40)]
    pods += [pod(f"b{place}", f"roomy-{place // 3:02}", memory="1Gi") for place in range(60)]
    verdict = disrupted(*plain, *roomy, pods=pods, types=(PLAIN, ROOMY))
    assert len(verdict.removed) >= 15
    assert all(name.startswith("roomy") for name in verdict.removed)
