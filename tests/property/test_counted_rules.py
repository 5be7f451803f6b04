"""Whatever the pods: no reservation is given away twice, no pool costs more than it may or has too much spot."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import given as cases
from hypothesis import strategies as st

from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import NodePool
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from tests.builders.pods import pod
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, Z2, fake_type
from tests.conformance.given import given, in_flight, wanted
from tests.conformance.sold_reservations import APART

SIZES = {"small": "2", "medium": "4", "large": "16"}
RESERVATIONS = {"cr-1": ("small", Z1), "cr-2": ("large", Z1), "cr-3": ("large", Z2), "cr-4": ("medium", Z2)}


def types(left: dict[str, int]) -> list[InstanceType]:
    made = []
    for name, cpu in SIZES.items():
        plain = fake_type(name, cpu=cpu, memory=f"{2 * int(cpu)}Gi", pods="50")
        held = tuple(
            Offering(
                zone, "reserved", plain.offerings[0].price / 1e7, reservation_id=key, reservation_capacity=left[key]
            )
            for key, (of_type, zone) in RESERVATIONS.items()
            if of_type == name
        )
        made.append(msgspec.structs.replace(plain, offerings=(*plain.offerings, *held)))
    return made


def ruled(name: str, weight: int, rules: dict[str, str]) -> NodePool:
    made = pool(name, weight=weight)
    written = {f"shiplap.dev/{key}": value for key, value in rules.items()}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=written))


RULES = st.fixed_dictionaries(
    {},
    optional={
        "max-hourly-price": st.sampled_from(["0.5", "2", "7.3"]),
        "min-on-demand": st.sampled_from(["0%", "30%", "50%", "100%"]),
        "on-demand-discount": st.sampled_from(["0.5", "0.1"]),
        "max-node-price": st.sampled_from(["1", "3"]),
    },
)
SHAPES = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.sampled_from(["100m", "1", "3", "9"]),
        st.booleans(),
        st.sampled_from([None, "spot", "on-demand", "reserved"]),
    ),
    min_size=1,
    max_size=5,
)


def pods_of(shapes: list[tuple[int, str, bool, str | None]]) -> list[Any]:
    return [
        pod(
            f"p-{shape}-{number}",
            cpu=cpu,
            selector={labels.CAPACITY_TYPE: kind} if kind else None,
            **(APART if apart else {}),
        )
        for shape, (count, cpu, apart, kind) in enumerate(shapes)
        for number in range(count)
    ]


def ids(claim: PlannedClaim) -> tuple[str, ...]:
    entry = wanted(claim, labels.RESERVATION_ID)
    return entry.values if entry is not None else ()


def may_be_spot(claim: PlannedClaim) -> bool:
    entry = wanted(claim, labels.CAPACITY_TYPE)
    return entry is None or "spot" in entry.values


@cases(
    shapes=SHAPES,
    left=st.fixed_dictionaries({key: st.integers(0, 3) for key in RESERVATIONS}),
    rules=st.tuples(RULES, RULES),
    policy=st.sampled_from(["Strict", "Fallback"]),
)
def test_counts_are_kept(
    shapes: list[tuple[int, str, bool, str | None]],
    left: dict[str, int],
    rules: tuple[dict[str, str], dict[str, str]],
    policy: str,
) -> None:
    pools = [ruled("heavy", 10, rules[0]), ruled("light", 0, rules[1])]
    sold, waiting = types(left), pods_of(shapes)
    first = given(*waiting, pools=pools, types=sold, reserved_policy=policy)
    flying = [in_flight(claim) for claim in first.claims]
    second = given(*waiting, pools=pools, types=sold, claims=flying, epoch=8, reserved_policy=policy)
    claims = [*first.claims, *second.claims]
    given_away = Counter(reservation for claim in claims for reservation in ids(claim))
    assert all(number <= left[reservation] for reservation, number in given_away.items())
    assert all(ids(claim) for claim in claims if claim.launch.capacity_type == "reserved")
    for made, own in zip(pools, rules, strict=True):
        of_pool = [claim for claim in claims if claim.node_pool == made.metadata.name]
        if "max-hourly-price" in own:
            assert sum(claim.launch.price for claim in of_pool) <= float(own["max-hourly-price"]) + 1e-6
        if "max-node-price" in own:
            assert all(claim.launch.price <= float(own["max-node-price"]) for claim in of_pool)
        if "min-on-demand" in own:
            steady = sum(not may_be_spot(claim) for claim in of_pool)
            assert 100 * steady >= float(own["min-on-demand"].rstrip("%")) * len(of_pool)
