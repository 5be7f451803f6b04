"""What `shiplap install` needs before it synthesises the stack: settings without a mistake, and Node.js."""

from __future__ import annotations

import os
from pathlib import Path

from shiplap_cdk.install_document import InstallConfig, read
from shiplap_cdk.nodejs import require_nodejs
from shiplap_lab.emulated_aws.cdk import executable


def read_for_synthesis(settings: Path) -> InstallConfig:
    """Read shiplap.yaml, and have the CDK find Node.js.

    Raises:
        InvalidInput: shiplap.yaml says something wrong; that is said before Node.js is looked for.
        InvalidManifests: a manifest does.
        ShiplapError: there is no Node.js, or it is too old.
    """
    install = read(settings)
    os.environ.setdefault("JSII_NODE", str(executable()))
    require_nodejs()
    return install
