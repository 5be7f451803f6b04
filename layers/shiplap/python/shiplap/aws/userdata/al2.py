"""AL2: a call of the AMI's bootstrap script, after the user's own part."""

from __future__ import annotations

from shlex import quote

from shiplap.aws.userdata import mime
from shiplap.aws.userdata.bootstrap import Bootstrap, kubelet_flags
from shiplap.manifests.validation.user_data_rules import is_archive


def render(wanted: Bootstrap) -> str:
    """The MIME document.

    Raises:
        NodeClassNotReady: the user's document is broken.
    """
    custom: list[mime.MimePart] = []
    if wanted.custom.strip():
        archive = is_archive(wanted.custom)
        custom = mime.parts(wanted.custom) if archive else [mime.MimePart.of(mime.SHELL, wanted.custom)]
    return mime.archive([*custom, mime.MimePart.of(mime.SHELL, _script(wanted))])


def _script(wanted: Bootstrap) -> str:
    words = ["/etc/eks/bootstrap.sh", quote(wanted.cluster)]
    words += ["--apiserver-endpoint", quote(wanted.endpoint), "--b64-cluster-ca", quote(wanted.ca)]
    if wanted.dns:
        words += ["--dns-cluster-ip", quote(wanted.dns)]
        if ":" in wanted.dns:
            words += ["--ip-family", "ipv6"]
    words += ["--use-max-pods", "false"]
    if wanted.raid0:
        words += ["--local-disks", "raid0"]
    words += ["--kubelet-extra-args", quote(" ".join(kubelet_flags(wanted)))]
    return "\n".join(("#!/bin/bash", "set -euo pipefail", " ".join(words)))
