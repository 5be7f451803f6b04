"""Windows: a PowerShell block that calls the AMI's bootstrap script, after the user's own part."""

from __future__ import annotations

from shiplap.aws.userdata.bootstrap import Bootstrap, kubelet_flags

_SCRIPT = r"$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"


def render(wanted: Bootstrap) -> str:
    """The block; a user's own `<powershell>` tags are taken off, because only one block may be there."""
    custom = wanted.custom.strip().removeprefix("<powershell>").removesuffix("</powershell>").strip()
    call = [
        f'& "{_SCRIPT}"',
        f"-EKSClusterName {_quote(wanted.cluster)}",
        f"-APIServerEndpoint {_quote(wanted.endpoint)}",
        f"-Base64ClusterCA {_quote(wanted.ca)}",
    ]
    if wanted.dns:
        call.append(f"-DNSClusterIP {_quote(wanted.dns)}")
    call.append(f"-KubeletExtraArgs {_quote(' '.join(kubelet_flags(wanted)))}")
    lines = ["<powershell>", *([custom] if custom else []), " ".join(call), "</powershell>", ""]
    return "\n".join(lines)


def _quote(text: str) -> str:
    """A PowerShell string that expands nothing."""
    return "'" + text.replace("'", "''") + "'"
