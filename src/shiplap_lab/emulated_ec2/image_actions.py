"""Actions on images that moto lacks or does in part: copies with tags, registration, deprecation."""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.amis import Ami
from moto.ec2.utils import convert_tag_spec, random_ami_id


def register_image(self: Any) -> ActionResult:
    """Moto's loses the architecture and the tags."""
    self.error_on_dryrun()
    image = Ami(
        self.ec2_backend,
        random_ami_id(),
        name=self._get_param("Name"),
        description=self._get_param("Description", ""),
        architecture=self._get_param("Architecture") or "i386",
        virtualization_type=self._get_param("VirtualizationType") or "paravirtual",
        root_device_name=self._get_param("RootDeviceName") or "/dev/xvda",
        tags=convert_tag_spec(self._get_param("TagSpecifications") or []).get("image", {}),
    )
    self.ec2_backend.amis[image.id] = image
    return ActionResult({"ImageId": image.id})


def copy_image(self: Any) -> ActionResult:
    """Moto's loses the tags, and that the copy is the account's own."""
    self.error_on_dryrun()
    image = self.ec2_backend.copy_image(
        self._get_param("SourceImageId"),
        self._get_param("SourceRegion"),
        self._get_param("Name"),
        self._get_param("Description"),
    )
    image.owner_id, image.owner_alias = self.current_account, None
    image.add_tags(convert_tag_spec(self._get_param("TagSpecifications") or []).get("image", {}))
    return ActionResult({"ImageId": image.id})


def enable_image_deprecation(self: Any) -> ActionResult:
    """From the given time on the image is described to those only who ask for deprecated ones or are its owner."""
    self.error_on_dryrun()
    image_id = self._get_param("ImageId")
    image = self.ec2_backend.amis.get(image_id)
    if image is None:
        raise EC2ClientError("InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist")
    vars(image)["deprecation_time"] = f"{self._get_param('DeprecateAt'):%Y-%m-%dT%H:%M:%S}.000Z"
    return ActionResult({"Return": True})
