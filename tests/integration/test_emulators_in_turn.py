"""One emulated EC2 after another in one process, as test modules start them."""

from __future__ import annotations

from tests.integration.contracts.emulated_ec2 import Region, emulated_region


def networks(region: Region) -> list[str]:
    chosen = [{"Name": "tag:karpenter.sh/discovery", "Values": ["demo"]}]
    return [item["CidrBlock"] for item in region.client("ec2").describe_subnets(Filters=chosen)["Subnets"]]


def test_a_second_emulator_knows_nothing_of_the_first() -> None:
    """Subnets of both would be chosen by the same tag, and their instances have the same addresses and names."""
    with emulated_region() as region:
        region.seed("demo")
        known = networks(region)
        image = region.client("ec2").describe_images()["Images"][0]["ImageId"]
        region.client("ec2").run_instances(ImageId=image, InstanceType="m5.large", MinCount=1, MaxCount=1)
        assert len(region.control.instances()) == 1
    with emulated_region() as region:
        assert region.control.instances() == ()
        assert networks(region) == []
        region.seed("demo")
        assert networks(region) == known
