"""The settings that an install's functions run with, read back from what is deployed: the layer made of shiplap.yaml.

The repository that an install was deployed from may have moved on, or be out of reach of who asks; the layer in
service is the truth.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping
from typing import Any

import msgspec
import urllib3

from shiplap.errors import AwsError
from shiplap.settings import Settings
from shiplap_cli.installs.find_install import DeployedInstall

_DOCUMENT = "python/shiplap_settings/settings.json"
_ALIAS = "live"
_DECODER = msgspec.json.Decoder(Settings)


def settings_of(install: DeployedInstall) -> Settings:
    """What the schedule function in service was deployed with.

    Raises:
        AwsError: Lambda does not tell, or no layer holds settings that this version can read.
        InvalidInput: the install's functions are not known.
    """
    function = install.output("ScheduleFunction")
    from shiplap.aws.ec2_errors import aws_errors  # noqa: PLC0415 - botocore is loaded only where AWS is asked
    from shiplap.aws.session import config, session  # noqa: PLC0415 - as above

    with aws_errors(f"look up the layers of {function}"):
        client: Any = session().create_client("lambda", os.environ.get("AWS_REGION"), config=config())
        found = client.get_function_configuration(FunctionName=function, Qualifier=_ALIAS)
    # The settings are by far the smallest layer.
    for layer in sorted(found.get("Layers", ()), key=lambda item: (int(item.get("CodeSize", 0)), str(item["Arn"]))):
        with aws_errors(f"look up layer {layer['Arn']}"):
            version = client.get_layer_version_by_arn(Arn=layer["Arn"])
        document = _document(_content(version))
        if document is not None:
            return _decoded(document)
    raise AwsError(f"function {function} has no layer with settings")


def _content(version: Mapping[str, Any]) -> bytes:
    where = str(version["Content"]["Location"])
    try:
        answer = urllib3.request("GET", where, timeout=urllib3.Timeout(connect=3, read=15), retries=2)
    except urllib3.exceptions.HTTPError as error:
        raise AwsError(f"the settings layer could not be fetched: {error}") from error
    if answer.status != 200:
        raise AwsError(f"the settings layer could not be fetched: HTTP {answer.status}")
    return answer.data


def _document(archive: bytes) -> bytes | None:
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            return opened.read(_DOCUMENT) if _DOCUMENT in opened.namelist() else None
    except zipfile.BadZipFile as error:
        raise AwsError(f"a layer is no zip archive: {error}") from error


def _decoded(document: bytes) -> Settings:
    try:
        return _DECODER.decode(document)
    except msgspec.DecodeError as error:
        raise AwsError(f"the install's settings are of a version that this one cannot read: {error}") from error
