"""Fits the coefficients of `estimated_prices` to a price list and says how far the model is off.

Usage: tools/fit_prices.py PRICES.json, a file `{"prices": {"us-east-1": {"m5.large": 0.096, …}}}` in USD per hour. The
printed table replaces USD_PER_HOUR. Errors are relative, so that a nano counts as much as a 48xlarge; the median of
their absolute values is what is minimised, because a few exotic types must not bend the rest.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiplap.instances.catalog.ec2_catalog import Ec2InstanceType
from shiplap.instances.offerings import estimated_prices
from shiplap_lab.catalogue import embedded

_REWEIGHTINGS = 40
_SWEEPS = 300
_PLAIN = re.compile(r"^[cmr]\d[agi]?(-flex)?\.")
_PLAIN_WEIGHT = 4.0


def main() -> None:
    """Fit, print the coefficients, then the errors of the rounded coefficients."""
    listed = json.loads(Path(sys.argv[1]).read_text())["prices"]["us-east-1"]
    kinds = [kind for kind in embedded.load().types if kind.instance_type in listed]
    known = np.array([listed[kind.instance_type] for kind in kinds])
    names, matrix = _design(kinds)
    weights = np.array([0.95 if "-flex." in kind.instance_type else 1.0 for kind in kinds])
    importance = np.array([_PLAIN_WEIGHT if _PLAIN.match(kind.instance_type) else 1.0 for kind in kinds])
    fitted = _fit(matrix * (weights / known)[:, None], importance)
    estimated_prices.USD_PER_HOUR = {name: float(f"{value:.4g}") for name, value in zip(names, fitted, strict=True)}
    lines = [f'    "{name}": {value},' for name, value in sorted(estimated_prices.USD_PER_HOUR.items())]
    sys.stdout.write("\n".join(["USD_PER_HOUR = {", *lines, "}", ""]))
    errors = np.array([abs(estimated_prices.on_demand(kind) / listed[kind.instance_type] - 1) for kind in kinds])
    generic = np.array([kind.instance_type[0] in "cmrt" and not kind.instance_type.startswith("trn") for kind in kinds])
    for label, chosen in (("c, m, r, t", generic), ("all", generic | True)):
        median, p90 = np.quantile(errors[chosen], [0.5, 0.9])
        sys.stdout.write(f"{label}: {chosen.sum()} types, median error {median:.1%}, 90th percentile {p90:.1%}\n")


def _design(kinds: list[Ec2InstanceType]) -> tuple[list[str], NDArray[np.float64]]:
    rows = [estimated_prices.features(kind) for kind in kinds]
    names = sorted({name for row in rows for name in row})
    return names, np.array([[row.get(name, 0.0) for name in names] for row in rows])


def _fit(relative: NDArray[np.float64], importance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Non-negative x with relative @ x ≈ 1, by iteratively reweighted least squares (absolute errors)."""
    scale = relative.max(axis=0)
    scaled = relative / scale
    weights = importance
    solution = np.zeros(scaled.shape[1])
    for _ in range(_REWEIGHTINGS):
        weighted = scaled * weights[:, None]
        gram, target = scaled.T @ weighted, weighted.sum(axis=0)
        for _ in range(_SWEEPS):
            for column in range(len(solution)):
                gradient = gram[column] @ solution - target[column]
                solution[column] = max(0.0, solution[column] - gradient / gram[column, column])
        weights = importance / np.maximum(np.abs(scaled @ solution - 1), 0.01)
    return solution / scale


if __name__ == "__main__":
    main()
