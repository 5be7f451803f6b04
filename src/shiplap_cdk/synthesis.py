"""The CDK app: `python -m shiplap_cdk`, which `cdk deploy` starts.

Context: `settings` is the path of shiplap.yaml; `stage=local` builds the layers for this machine, because the local
emulator runs the functions with this interpreter; `endpoints` (local stage) is a JSON object from AWS service ids to
addresses. Apart from these layers and addresses the local template is the deployed one. `withoutEventSourceMapping` is
the name of a Lambda function, see `stack_values`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from aws_cdk import Annotations, App, DefaultStackSynthesizer, Environment, Validations
from cdk_nag import AwsSolutionsChecks
from jsii.errors import JSIIError

from shiplap.errors import InvalidInput, InvalidManifests, ShiplapError
from shiplap.printable import printable
from shiplap_cdk import quotas
from shiplap_cdk.artifacts import layers
from shiplap_cdk.artifacts.layers import Artifacts
from shiplap_cdk.install_document import InstallConfig, inspect_install
from shiplap_cdk.stack import ShiplapStack
from shiplap_cdk.stack_values import WITHOUT_MAPPING

DEFAULT_SETTINGS = "shiplap.yaml"

# Behaviour of the CDK that new apps are advised to choose; set here so that tests see what is deployed.
FLAGS: Mapping[str, Any] = {
    "@aws-cdk/aws-iam:minimizePolicies": True,
    "@aws-cdk/aws-lambda:recognizeLayerVersion": True,
    "@aws-cdk/aws-lambda:recognizeVersionProps": True,
    "@aws-cdk/core:checkSecretUsage": True,
    "@aws-cdk/core:enablePartitionLiterals": True,
    "@aws-cdk/core:stackRelativeExports": True,
    "@aws-cdk/core:validateAgainstDefaultRules": True,
    # `quotas` counts resources, and says what to do.
    "@aws-cdk/core:stackResourceLimit": 0,
}


def build(
    install: InstallConfig,
    *,
    local: bool = False,
    endpoints: Mapping[str, str] | None = None,
    **app: Any,
) -> App:
    """The app of one install, not yet synthesised.

    Raises:
        InvalidInput: the context says something wrong.
        ShiplapError: a layer cannot be built.
    """
    target = layers.HERE if local else layers.LAMBDA
    artifacts = Artifacts.built(install.settings(), target)
    qualifier = install.document.bootstrap_qualifier
    if qualifier and not local:
        app.setdefault("default_stack_synthesizer", DefaultStackSynthesizer(qualifier=qualifier))
    tree = App(analytics_reporting=False, post_cli_context=dict(FLAGS), **app)
    stack = ShiplapStack(
        tree,
        install.document.name.title(),
        install=install,
        artifacts=artifacts,
        environment={f"AWS_ENDPOINT_URL_{service}": url for service, url in (endpoints or {}).items()},
        env=_environment(install),
    )
    left_out = tree.node.try_get_context(WITHOUT_MAPPING)
    if left_out and left_out not in stack.shiplap.fed:
        known = ", ".join(sorted(stack.shiplap.fed))
        raise InvalidInput(f"-c {WITHOUT_MAPPING}={left_out}", f"queues feed {known}: name one of them")
    if not local:
        Validations.of(tree).add_plugins(AwsSolutionsChecks(tree))
    if not target.bytecode:
        Annotations.of(stack).add_warning_v2(
            "shiplap:bytecode",
            f"Python {target.python} is needed to compile bytecode for the functions; without it they start slower.",
        )
    return tree


def synthesise(install: InstallConfig, **app: Any) -> Path:
    """Synthesise the app of one install, as `build`, and hold it against AWS's quotas; returns the assembly's folder.

    Raises:
        InvalidInput: the context says something wrong.
        InvalidManifests: the stack would exceed quotas.
        ShiplapError: a layer cannot be built, or the CDK refuses the stack.
    """
    # The CDK's own validation would report before the quotas do, by logical ids; the tests of the templates use it.
    quiet: dict[str, Any] = {"builtin_cloud_formation_validation": False}
    try:
        folder = Path(build(install, **quiet, **app).synth().directory)
    except (JSIIError, RuntimeError) as error:
        raise ShiplapError(f"the CDK refuses the stack: {str(error).strip().partition(chr(10))[0]}") from error
    files = {path.name.partition(".")[0]: path for path in sorted(folder.glob("*.template.json"))}
    templates = {name: json.loads(path.read_text()) for name, path in files.items()}
    target = layers.HERE if app.get("local") else layers.LAMBDA
    artifacts = Artifacts.built(install.settings(), target)
    code = {name: layer.path for name, layer in artifacts._asdict().items()}
    reasons = [*quotas.exceeded(templates), *quotas.too_long(files), *quotas.too_large(code)]
    if reasons:
        raise InvalidManifests([install.refusal(("clusters",), reason) for reason in reasons])
    return folder


def _environment(install: InstallConfig) -> Environment:
    return Environment(region=install.document.region, account=install.document.account or None)


def main() -> int:
    """Synthesise by the context that the CDK's command line passes; exit code 2 for bad input."""
    context = App().node
    settings = Path(context.try_get_context("settings") or DEFAULT_SETTINGS)
    local = context.try_get_context("stage") == "local"
    endpoints = context.try_get_context("endpoints") if local else None
    try:
        found = inspect_install(settings)
        if found.install is None:
            raise InvalidManifests(found.problems)
        _tell(warning.as_warning for warning in found.warnings)
        synthesise(found.install, local=local, endpoints=json.loads(endpoints) if endpoints else None)
    except InvalidManifests as error:
        _tell(map(str, error.problems))
        return 2
    except ShiplapError as error:
        _tell([str(error)])
        return 2
    return 0


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        print(printable(line), file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
