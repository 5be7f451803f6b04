"""The files of the module: JSON that Terraform reads, the archives with the functions' code, a README."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from shiplap_cdk.install_document import InstallConfig
from shiplap_cdk.plain_template import write_template
from shiplap_cdk.terraform.conversion import Module, converted, object_name
from shiplap_cdk.terraform.terraform_expressions import Json

# `aws_region` has had the attribute `region` since version 6.
_PROVIDERS = {
    "aws": {"source": "hashicorp/aws", "version": ">= 6.0"},
    "awscc": {"source": "hashicorp/awscc", "version": ">= 1.0"},
}
_LOG_GROUPS = "awscc_logs_log_group"

# By https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutRetentionPolicy.html.
_RETENTIONS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653)

_README = """\
# Shiplap as a Terraform module

`shiplap install terraform` wrote this module from shiplap.yaml. Change the settings there and write it again.
**It was never applied, and no Terraform has validated it**: read `terraform plan` before you apply it.

* `hashicorp/awscc` makes nearly all resources: it takes the properties of CloudFormation under other names.
* `hashicorp/aws` makes inline policies of roles, and uploads the archives in `assets/` to a bucket of the module.
* Configure both providers for the Region {region}{account}. Another one is refused:

  ```hcl
  provider "aws" {{
    region = "{region}"
  }}

  provider "awscc" {{
    region = "{region}"
  }}

  module "shiplap" {{
    source = "./shiplap-terraform"
  }}
  ```

* Apply `rbac/rbac.yaml` to each cluster; with `manifests: cluster`, `rollouts` or `deletionCosts` in shiplap.yaml also
  the manifest in `rbac/` of that name.

Differences from the CloudFormation stack:

* There is no stack. `shiplap status`, `doctor`, `install rollback` and `install uninstall` look for one, and do not
  find this install.
* An earlier version of a function goes when its successor is there. To go back, apply the earlier module.
* Resources that a deployment must not delete (tables, the bucket, what nodes carry) have `prevent_destroy`. Terraform
  does not heed it once a resource has left the module. Before you remove a cluster or change a role of nodes, run
  `terraform state rm` for each of its addresses in the output `retained`.

The way out:

1. Set `paused: true` for each cluster in shiplap.yaml, write the module again and apply it.
2. Drain and end the nodes: `kubectl drain`, then terminate their instances. What a node carries, its role, instance
   profile and access entry, must stay until its node is gone.
3. `terraform state rm` for each address in the output `retained`, then `terraform destroy`.
4. Delete what was retained: the tables, the bucket, the identities of nodes. The RBAC manifests go with
   `kubectl delete --ignore-not-found -f FILE`, each by its name.
"""


class WrittenModule(NamedTuple):
    """The files written, and how many resources they describe."""

    files: tuple[Path, ...]
    resources: int
    remarks: tuple[str, ...]
    """What the install does without in its Region, and why: a line each."""


def write_module(install: InstallConfig, folder: Path) -> WrittenModule:
    """Write the module of an install; what else the folder holds stays, Terraform's state included.

    Raises:
        InvalidManifests: the stack would exceed quotas.
        ShiplapError: the template cannot be synthesised, or has something without a counterpart in Terraform.
    """
    document = install.document
    with tempfile.TemporaryDirectory() as work:
        written = write_template(install, Path(work))
        assets = {path.name: path for path in written.assets}
        nested = {name: json.loads(path.read_text()) for name, path in assets.items() if path.suffix == ".json"}
        module = converted(json.loads(written.template.read_text()), nested)
        for name in ("assets", "rbac"):
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir(parents=True)
        copied = [Path(shutil.copyfile(assets[name], folder / "assets" / name)) for name in module.archives]
        copied += [Path(shutil.copyfile(path, folder / "rbac" / path.name)) for path in written.rbac]
    texts = {f"{name}.tf.json": _json(content) for name, content in _files(module, document).items()}
    account = f" and the account {document.account}" if document.account else ""
    texts["README.md"] = _README.format(region=document.region, account=account)
    for name, text in texts.items():
        (folder / name).write_text(text)
    files = (*(folder / name for name in texts), *copied)
    return WrittenModule(files, sum(map(len, module.resources.values())), written.remarks)


def _files(module: Module, document: Any) -> dict[str, Json]:
    resources, retention = _with_retention(module)
    outputs = {name: {"value": value} for name, value in module.outputs.items()}
    return {
        "versions": {"terraform": {"required_version": ">= 1.5", "required_providers": _PROVIDERS}},
        "variables": {"variable": module_variables(retention)},
        "main": {
            "data": {name: {"current": {}} for name in ("aws_caller_identity", "aws_partition", "aws_region")},
            "locals": dict(module.local_values),
            "resource": {**resources, **_bucket(module.archives, document.region, document.account)},
        },
        "outputs": {"output": {**outputs, "retained": {"value": list(module.retained)}}},
    }


def _with_retention(module: Module) -> tuple[dict[str, Any], int]:
    """Return the resources with the variable in place of the days that shiplap.yaml says, and these."""
    groups = module.resources[_LOG_GROUPS]
    days = {group["retention_in_days"] for group in groups.values()}
    (retention,) = days
    kept = {name: group | {"retention_in_days": "${var.log_retention_days}"} for name, group in groups.items()}
    return {**module.resources, _LOG_GROUPS: kept}, retention


def module_variables(retention: int) -> Json:
    """Return the variables of the module; each refuses, with a remedy, what AWS would refuse at the end of an apply."""
    return {
        "assets_bucket": {
            "type": "string",
            "description": "The name of the bucket for the functions' code; Terraform makes one up without.",
            "default": None,
            "validation": [
                {
                    "condition": '${var.assets_bucket == null ? true : can(regex("^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$",'
                    " var.assets_bucket))}",
                    "error_message": "assets_bucket takes the name of a bucket alone: 3 to 63 lower-case letters,"
                    " digits and hyphens, without s3://, an ARN, a path or dots, such as shiplap-assets-production.",
                },
                {
                    "condition": "${var.assets_bucket == null ? true : !can(regex("
                    '"^(xn--|sthree-|amzn-s3-demo-)|(-s3alias|--ol-s3|--x-s3|--table-s3)$", var.assets_bucket))}',
                    "error_message": "assets_bucket begins or ends as names that S3 keeps for itself: choose another.",
                },
            ],
        },
        "log_retention_days": {
            "type": "number",
            "description": "How many days the functions' logs are kept.",
            "default": retention,
            "nullable": False,
            "validation": {
                "condition": f"${{contains({list(_RETENTIONS)}, var.log_retention_days)}}",
                "error_message": "log_retention_days takes a number that CloudWatch knows: write one of"
                f" {', '.join(map(str, _RETENTIONS))}.",
            },
        },
    }


def _bucket(archives: tuple[str, ...], region: str, account: str | None) -> Json:
    """Return the bucket of the archives and its objects; it refuses a provider of another Region or account."""
    wanted = {
        "aws_region.current.region": ("Region", region),
        "aws_caller_identity.current.account_id": ("account", account),
    }
    preconditions = [
        {
            "condition": f'${{data.{actual} == "{value}"}}',
            "error_message": f"shiplap.yaml names the {what} {value}: configure the providers for it.",
        }
        for actual, (what, value) in wanted.items()
        if value
    ]
    return {
        "aws_s3_bucket": {
            "assets": {
                "bucket": "${var.assets_bucket}",
                "bucket_prefix": '${var.assets_bucket == null ? "shiplap-assets-" : null}',
                "lifecycle": {"precondition": preconditions},
            }
        },
        "aws_s3_bucket_public_access_block": {
            "assets": {
                "bucket": "${aws_s3_bucket.assets.id}",
                "block_public_acls": True,
                "block_public_policy": True,
                "ignore_public_acls": True,
                "restrict_public_buckets": True,
            }
        },
        "aws_s3_object": {
            object_name(name): {
                "bucket": "${aws_s3_bucket.assets.id}",
                "key": name,
                "source": f"${{path.module}}/assets/{name}",
            }
            for name in archives
        },
    }


def _json(content: Json) -> str:
    return json.dumps(content, indent=2) + "\n"
