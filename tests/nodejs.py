"""Node.js for the CDK's binding, which looks for it when it is imported; without it, who imports this is skipped."""

from __future__ import annotations

import os

import pytest

from shiplap.errors import ShiplapError
from shiplap_lab.emulated_aws import cdk

try:
    NODE = cdk.executable()
except ShiplapError as missing:
    pytest.skip(f"the CDK cannot run: {missing}", allow_module_level=True)

os.environ.setdefault("JSII_NODE", str(NODE))
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "18,20")
