"""A plain CloudFormation template of an install, with its assets in a folder, for those who deploy without the CDK.

It is the stack that the CDK's command line would deploy, from the same construct. Only the bucket with the assets
differs: that of `cdk bootstrap` is not needed.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from aws_cdk import DefaultStackSynthesizer

from shiplap_cdk.install_document import InstallConfig
from shiplap_cdk.region_differences import left_out
from shiplap_cdk.shipped_files import rbac_manifests
from shiplap_cdk.synthesis import synthesise

# Zip knows no earlier date.
_DATE = (1980, 1, 1, 0, 0, 0)


class WrittenTemplate(NamedTuple):
    """The files written: the template, and the assets that it expects in its bucket under their file names."""

    stack: str
    bucket: str
    template: Path
    assets: tuple[Path, ...]
    rbac: tuple[Path, ...]
    """What each cluster needs, with a kustomization."""
    remarks: tuple[str, ...]
    """What the stack does without in its Region, and why: a line each."""


BUCKET = "shiplap-assets-${AWS::AccountId}-${AWS::Region}"
"""The bucket unless another is named: CloudFormation fills in where it deploys."""


def write_template(install: InstallConfig, folder: Path, bucket: str = "") -> WrittenTemplate:
    """Write `template.json`, `assets/` and the RBAC manifests; what else the folder holds stays.

    `bucket` may hold `${AWS::AccountId}` and `${AWS::Region}`, which CloudFormation fills in. Without it, it is that of
    the bootstrap whose qualifier shiplap.yaml names, else BUCKET.

    Raises:
        InvalidManifests: the stack would exceed quotas.
        ShiplapError: a layer cannot be built, or the CDK refuses the stack.
    """
    document = install.document
    qualifier = document.bootstrap_qualifier
    bootstrapped = f"cdk-{qualifier}-assets-${{AWS::AccountId}}-${{AWS::Region}}" if qualifier else BUCKET
    bucket = bucket or bootstrapped
    with tempfile.TemporaryDirectory() as work:
        synthesizer = DefaultStackSynthesizer(
            file_assets_bucket_name=bucket, bucket_prefix="", generate_bootstrap_version_rule=False
        )
        assembly = synthesise(install, outdir=work, default_stack_synthesizer=synthesizer)
        (listed,) = assembly.glob("*.assets.json")
        stack = listed.name.removesuffix(".assets.json")
        folder.mkdir(parents=True, exist_ok=True)
        template = folder / "template.json"
        shutil.copyfile(assembly / f"{stack}.template.json", template)
        assets = _write_assets(listed, folder / "assets", without=f"{stack}.template.json")
    rbac = tuple(Path(shutil.copyfile(path, folder / path.name)) for path in rbac_manifests())
    remarks = tuple(line for _, line in left_out(document.region))
    return WrittenTemplate(stack, bucket, template, assets, rbac, remarks)


def _write_assets(listed: Path, folder: Path, *, without: str) -> tuple[Path, ...]:
    """Write each asset of an assembly by its key in the bucket; those of earlier syntheses are removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    written = []
    for asset in json.loads(listed.read_text())["files"].values():
        source = listed.parent / asset["source"]["path"]
        if source.name == without:
            continue
        keys = {destination["objectKey"] for destination in asset["destinations"].values()}
        for key in sorted(keys):
            if asset["source"]["packaging"] == "zip":
                _zip(source, folder / key)
            else:
                shutil.copyfile(source, folder / key)
            written.append(folder / key)
    return tuple(sorted(written))


def _zip(folder: Path, archive: Path) -> None:
    """Pack what is in a folder; same files, same bytes."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            out.writestr(entry, path.read_bytes())
