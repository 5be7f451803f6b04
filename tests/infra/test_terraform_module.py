"""`shiplap install terraform`: all that the template says, and nothing that Terraform's providers do not know.

awscc takes the properties of CloudFormation's schemas in snake case, so cfn-lint's copy of them judges its arguments.
"""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hcl2
import pytest
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from shiplap.errors import ShiplapError
from shiplap_cli.main import run
from tests.aws_rules import installs

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from shiplap_cdk.install_document import read
from shiplap_cdk.plain_template import write_template
from shiplap_cdk.terraform.conversion import converted
from shiplap_cdk.terraform.module_files import write_module
from shiplap_cdk.terraform.resource_types import TYPES, attribute_name, terraform_type

Json = dict[str, Any]

BOUNDED = installs.PRIVATE | {
    "account": "123456789012",
    "permissionsBoundary": "boundary",
    "logRetentionDays": 90,
    "clusterMetrics": True,
}
_ADDRESS = re.compile(r"\b(aws(?:cc)?_[a-z0-9_]+)\.(\w+)(?:\.(\w+))?")
_PSEUDO = {
    "data.aws_caller_identity.current.account_id": "AWS::AccountId",
    "data.aws_partition.current.partition": "AWS::Partition",
    "data.aws_region.current.region": "AWS::Region",
    "data.aws_partition.current.dns_suffix": "AWS::URLSuffix",
}
_OURS = {"aws_s3_bucket", "aws_s3_bucket_public_access_block", "aws_s3_object"}


class Written(NamedTuple):
    """A template with its nested ones, by the prefix of their resources, and the module made from it."""

    templates: dict[str, Json]
    nested_files: dict[str, Json]
    folder: Path

    def file(self, name: str) -> Json:
        content: Json = json.loads((self.folder / f"{name}.tf.json").read_text())
        return content

    def resources(self) -> dict[str, dict[str, Json]]:
        found: dict[str, dict[str, Json]] = self.file("main")["resource"]
        return found

    def pairs(self) -> Iterator[tuple[str, str, Json, Json]]:
        """Each resource of the templates: prefix, logical id, itself, its counterpart."""
        resources = self.resources()
        for prefix, template in self.templates.items():
            for name, item in template["Resources"].items():
                if item["Type"] != "AWS::CloudFormation::Stack":
                    yield prefix, name, item, resources[terraform_type(item["Type"])][prefix + name]


@pytest.fixture(scope="module", params=["public", "private", "bounded", "networks"])
def written(request: pytest.FixtureRequest, layers_built: None, tmp_path_factory: pytest.TempPathFactory) -> Written:
    del layers_built
    folder = tmp_path_factory.mktemp(request.param)
    install: dict[str, object] = {"public": installs.PUBLIC, "private": installs.PRIVATE, "bounded": BOUNDED}
    chosen = install.get(request.param) or installs.many_clusters(folder, 5, 2)
    settings = installs.write(folder, chosen)
    stack = write_template(read(settings), folder / "template")
    outer = json.loads(stack.template.read_text())
    files = {path.name: json.loads(path.read_text()) for path in stack.assets if path.suffix == ".json"}
    templates = {"": outer}
    for name, item in outer["Resources"].items():
        if item["Type"] == "AWS::CloudFormation::Stack":
            (file,) = re.findall(r"\w+\.json", json.dumps(item["Properties"]["TemplateURL"]))
            templates[f"{name}_"] = files[file]
    write_module(read(settings), folder / "module")
    return Written(templates, files, folder / "module")


def schema(kind: str) -> Json:
    found: Json = PROVIDER_SCHEMA_MANAGER.get_resource_schema("eu-west-1", kind).schema
    return found


def mentioned(value: Any) -> set[str]:
    """What a value of a template refers to; an output of a nested stack is `stack.output`."""
    if isinstance(value, list):
        return set().union(*map(mentioned, value))
    if not isinstance(value, dict):
        return set()
    found = set().union(*map(mentioned, value.values()))
    match value:
        case {"Ref": str() as name}:
            found.add(name)
        case {"Fn::GetAtt": [str() as name, str() as attribute]}:
            found.add(attribute.replace("Outputs", name) if attribute.startswith("Outputs.") else name)
        case {"Fn::Sub": str() as text}:
            found |= set(re.findall(r"\$\{([^}.]+)", text))
    return found


def given(written: Written, prefix: str) -> Json:
    """What the outer template gives for the parameters of a nested one."""
    stack = written.templates[""]["Resources"].get(prefix.removesuffix("_"), {})
    parameters: Json = stack.get("Properties", {}).get("Parameters", {})
    return parameters


def expected_names(written: Written, prefix: str, wanted: set[str]) -> Iterator[str]:
    """The names of the counterparts of all that a template refers to."""
    parameters, resources = given(written, prefix), written.templates[prefix]["Resources"]
    for each in wanted:
        stack, dot, output = each.partition(".")
        if dot:
            value = written.templates[f"{stack}_"]["Outputs"][output]["Value"]
            yield from expected_names(written, f"{stack}_", mentioned(value))
        elif each in parameters:
            yield from expected_names(written, "", mentioned(parameters[each]))
        elif f"{each}_" in written.templates:
            yield from (f"{each}_{inner}" for inner in written.templates[f"{each}_"]["Resources"])
        elif each in resources:
            yield prefix + each


def without_intrinsics(value: Any, prefix: str, written: Written) -> Any:
    """A value of a template, with <name> for all that it refers to."""
    parameters = given(written, prefix)
    match value:
        case {"Ref": str() as name} if name in parameters:
            return without_intrinsics(parameters[name], "", written)
        case {"Fn::GetAtt": [str() as stack, str() as output]} if f"{stack}_" in written.templates:
            inner = written.templates[f"{stack}_"]["Outputs"][output.removeprefix("Outputs.")]
            return without_intrinsics(inner["Value"], f"{stack}_", written)
        case {"Ref": str() as name} | {"Fn::GetAtt": [str() as name, _]}:
            return f"<{name if name.startswith('AWS::') else prefix + name}>"
        case {"Fn::Join": [str() as separator, list() as parts]}:
            return separator.join(without_intrinsics(part, prefix, written) for part in parts)
        case dict():
            return {key: without_intrinsics(item, prefix, written) for key, item in value.items()}
        case list():
            return [without_intrinsics(item, prefix, written) for item in value]
    return value


def without_expressions(text: str) -> Any:
    """A JSON text of the module, with <name> for all that it refers to."""

    def name(found: re.Match[str]) -> str:
        expression = found[1]
        return f"<{_PSEUDO.get(expression) or expression.split('.')[1]}>"

    return json.loads(re.sub(r"(?<!\$)\$\{([^}]*)\}", name, text).replace("$${", "${"))


def test_each_resource_of_the_templates_has_one_counterpart(written: Written) -> None:
    expected = Counter(terraform_type(item["Type"]) for _, _, item, _ in written.pairs())
    found = {kind: len(named) for kind, named in written.resources().items() if kind not in _OURS}
    assert found == expected
    assert sum(expected.values()) > 70


def test_each_property_is_an_argument_that_the_schema_knows(written: Written) -> None:
    for _, name, item, arguments in written.pairs():
        if item["Type"] == "AWS::IAM::Policy":
            assert set(arguments) - {"depends_on"} == {"name", "policy", "role"}
            continue
        known = schema(item["Type"])
        wanted = {attribute_name(key) for key in item.get("Properties", {})}
        assert set(arguments) - {"depends_on", "lifecycle"} == wanted, name
        assert wanted <= {attribute_name(key) for key in known["properties"]}, name
        assert {attribute_name(key) for key in known.get("required", ())} <= wanted, name


def test_every_reference_resolves_within_the_module(written: Written) -> None:
    main, outputs, variables = (written.file(name) for name in ("main", "outputs", "variables"))
    text = json.dumps([main, outputs])
    kinds = {terraform_type(kind): kind for kind in TYPES}
    data = set(re.findall(r"\bdata\.(\w+)\.current\b", text))
    assert data <= set(main["data"])
    assert set(re.findall(r"\blocal\.(\w+)", text)) == set(main["locals"])
    assert set(re.findall(r"\bvar\.(\w+)", text)) == set(variables["variable"])
    found = [each for each in _ADDRESS.findall(text) if each[0] not in data]
    assert len(found) > 200
    for kind, name, attribute in found:
        assert name in main["resource"][kind], (kind, name)
        if attribute and kind in kinds:
            known = schema(kinds[kind])["properties"]
            assert attribute in {attribute_name(key) for key in known}, (kind, attribute)


def test_ref_is_the_primary_identifier() -> None:
    for kind, known in TYPES.items():
        if known.ref:
            (identifier,) = schema(kind)["primaryIdentifier"]
            assert known.ref == attribute_name(identifier.rpartition("/")[2]), kind


def test_objects_without_a_structure_are_json_or_maps() -> None:
    for kind, known in TYPES.items():
        properties = schema(kind)["properties"]
        free = {
            name
            for name in known.properties
            if "object" in str(properties[name].get("type")) and not properties[name].get("properties")
        }
        assert free <= known.documents | known.maps, kind


def test_every_dependency_is_kept(written: Written) -> None:
    expressions = written.file("main")["locals"]
    checked = 0
    for prefix, name, item, arguments in written.pairs():
        text = json.dumps(arguments)
        for local in re.findall(r"local\.(\w+)", text):
            text += expressions[local]
        waits = {found[1] for found in _ADDRESS.findall(text)}
        depends = item.get("DependsOn", [])
        wanted = mentioned(item.get("Properties", {})) | set([depends] if isinstance(depends, str) else depends)
        expected = set(expected_names(written, prefix, wanted))
        if prefix:
            stack = written.templates[""]["Resources"][prefix[:-1]]
            expected |= set(expected_names(written, "", set(stack.get("DependsOn", []))))
        assert expected <= waits, name
        checked += len(expected)
    assert checked > 150


def test_policies_say_what_those_of_the_template_say(written: Written) -> None:
    checked = 0
    for prefix, name, item, arguments in written.pairs():
        for key in ("PolicyDocument", "AssumeRolePolicyDocument"):
            document = item.get("Properties", {}).get(key)
            if document is None:
                continue
            argument = "policy" if item["Type"] == "AWS::IAM::Policy" else attribute_name(key)
            assert without_expressions(arguments[argument]) == without_intrinsics(document, prefix, written), name
            checked += 1
    assert checked > 20


def test_each_archive_is_a_file_and_an_object(written: Written) -> None:
    objects = written.resources()["aws_s3_object"]
    keys = {item["key"] for item in objects.values()}
    assert keys == {path.name for path in (written.folder / "assets").iterdir()}
    assert {item["source"] for item in objects.values()} == {f"${{path.module}}/assets/{key}" for key in keys}
    resources = written.resources()
    used = [item["code"] for item in resources["awscc_lambda_function"].values()]
    used += [item["content"] for item in resources["awscc_lambda_layer_version"].values()]
    assert {re.findall(r"\.asset_(\w+)\.key", item["s3_key"])[0] + ".zip" for item in used} == keys


def test_expressions_with_quotation_marks_are_hcl(written: Written) -> None:
    main, variables = written.file("main"), written.file("variables")["variable"]
    bucket = main["resource"]["aws_s3_bucket"]["assets"]
    expressions = [*main["locals"].values(), bucket["bucket_prefix"]]
    rules = [each["validation"] for each in variables.values()]
    expressions += [rule["condition"] for each in rules for rule in (each if isinstance(each, list) else [each])]
    expressions += [
        each["condition"] for each in main["resource"]["aws_s3_bucket"]["assets"]["lifecycle"]["precondition"]
    ]
    assert len(expressions) > 6
    for expression in expressions:
        assert hcl2.loads(f"x = {expression.removeprefix('${').removesuffix('}')}\n")["x"], expression


def test_what_a_stack_would_retain_is_not_destroyed(written: Written) -> None:
    retained = set(written.file("outputs")["output"]["retained"]["value"])
    assert len(retained) > 4
    for prefix, name, item, arguments in written.pairs():
        replaced = item["Type"] in {"AWS::Lambda::Version", "AWS::Lambda::LayerVersion"}
        kept = item.get("DeletionPolicy", "Delete") != "Delete" and not replaced
        assert (f"{terraform_type(item['Type'])}.{prefix}{name}" in retained) == kept
        expected = {"prevent_destroy": True} if kept else {"create_before_destroy": True} if replaced else None
        assert arguments.get("lifecycle") == expected, name


def test_the_command_writes_over_its_own_files_only(layers_built: None, tmp_path: Path) -> None:
    del layers_built
    settings = installs.write(tmp_path, BOUNDED)
    to = tmp_path / "module"
    (to / "assets").mkdir(parents=True)
    (to / "assets" / "old.zip").write_text("")
    (to / "terraform.tfstate").write_text("theirs")
    assert run(["install", "terraform", "--settings", str(settings), "--to", str(to)]) == 0
    first = {path.name: path.read_bytes() for path in to.rglob("*") if path.is_file()}
    assert run(["install", "terraform", "--settings", str(settings), "--to", str(to)]) == 0
    assert {path.name: path.read_bytes() for path in to.rglob("*") if path.is_file()} == first
    assert first["terraform.tfstate"] == b"theirs"
    assert "old.zip" not in first
    assert b"never applied" in first["README.md"]
    assert b"eu-west-1 and the account 123456789012" in first["README.md"]
    assert b'provider "awscc" {\n    region = "eu-west-1"\n  }' in first["README.md"]
    assert first["README.md"].index(b"terraform state rm` for each address") < first["README.md"].index(
        b"terraform destroy"
    )
    assert json.loads(first["variables.tf.json"])["variable"]["log_retention_days"]["default"] == 90
    assert b'data.aws_caller_identity.current.account_id == \\"123456789012\\"' in first["main.tf.json"]


def queue(**properties: Any) -> Json:
    return {"Type": "AWS::SQS::Queue", "Properties": properties}


def nested(**properties: Any) -> Json:
    return {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": f"{'a' * 64}.json"} | properties}


@pytest.mark.parametrize(
    ("resource", "said"),
    [
        ({"Type": "AWS::SNS::Topic"}, "A: the type AWS::SNS::Topic has no counterpart"),
        ({"Type": "Custom::Thing"}, "A: the type Custom::Thing"),
        (queue(FifoQueue=True), "the property FifoQueue has no counterpart"),
        (queue() | {"Condition": "Here"}, "A: the attribute Condition"),
        (queue() | {"CreationPolicy": {}}, "A: the attribute CreationPolicy"),
        (queue() | {"DependsOn": "B"}, "depends on B, which it does not have"),
        (queue(QueueName={"Ref": "B"}), "A (AWS::SQS::Queue): the template refers to B"),
        (queue(QueueName={"Ref": "AWS::StackName"}), "refers to AWS::StackName"),
        (queue(QueueName={"Fn::GetAtt": ["B", "Arn"]}), "refers to B"),
        (queue(QueueName={"Fn::GetAtt": ["A", "Outputs.Name"]}), "no counterpart of Fn::GetAtt"),
        (queue(QueueName={"Fn::ImportValue": "x"}), "no counterpart of Fn::ImportValue"),
        (queue(QueueName={"Fn::If": ["Here", "a", "b"]}), "no counterpart of Fn::If"),
        (queue(QueueName={"Fn::Sub": ["${x}", {"x": "y"}]}), "no counterpart of Fn::Sub"),
        (queue(QueueName={"Fn::Sub": "${B}"}), "refers to B"),
        (queue(QueueName={"Fn::Join": ["", [["a"]]]}), "joins ['a'], which is no text"),
        (queue(QueueName={"Fn::Select": [0, ["a"]]}), "no counterpart of Fn::Select"),
        ({"Type": "AWS::IAM::Policy", "Properties": {"Roles": ["a", "b"]}}, "one role, not to 2"),
        (
            {"Type": "AWS::Lambda::Function", "Properties": {"Code": {"ZipFile": "x"}}},
            "the code: the property ZipFile",
        ),
        (nested(Parameters={"Wanted": ""}) | {"DependsOn": "A.B"}, "depends on A.B"),
        (nested(), "parameter Wanted of the template"),
        (nested(TemplateURL="b.json"), "no file of its template"),
        (nested(NotificationARNs=[]), "A: the property NotificationARNs"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(resource: Json, said: str) -> None:
    inner = {"Resources": {}, "Parameters": {"Wanted": {"Type": "String"}}}
    with pytest.raises(ShiplapError, match=re.escape(said)):
        converted({"Resources": {"A": resource}}, {f"{'a' * 64}.json": inner})


@pytest.mark.parametrize("section", ["Conditions", "Mappings", "Rules", "Transform"])
def test_a_section_without_counterpart_is_refused(section: str) -> None:
    with pytest.raises(ShiplapError, match=f"the section {section} has no counterpart"):
        converted({"Resources": {"A": queue()}, section: {}}, {})


def test_an_exported_output_is_refused() -> None:
    outputs = {"Url": {"Value": {"Ref": "A"}, "Export": {"Name": "url"}}}
    with pytest.raises(ShiplapError, match="the output Url: the attribute Export"):
        converted({"Resources": {"A": queue()}, "Outputs": outputs}, {})


def test_ref_of_a_type_without_one_identifier_is_refused() -> None:
    entry = {"Type": "AWS::EKS::AccessEntry", "Properties": {}}
    with pytest.raises(ShiplapError, match=r"Ref of AWS::EKS::AccessEntry has no counterpart"):
        converted({"Resources": {"A": queue(QueueName={"Ref": "B"}), "B": copy.deepcopy(entry)}}, {})


def test_an_output_that_a_nested_template_lacks_is_refused() -> None:
    resources = {"A": nested(), "B": queue(QueueName={"Fn::GetAtt": ["A", "Outputs.Name"]})}
    with pytest.raises(ShiplapError, match="refers to the output Name"):
        converted({"Resources": resources}, {f"{'a' * 64}.json": {"Resources": {}}})


def test_text_that_terraform_would_read_is_escaped() -> None:
    module = converted(
        {"Resources": {"A": queue(QueueName="${a}%{b}"), "B": queue(QueueName={"Fn::Sub": "${!a}"})}}, {}
    )
    queues = module.resources["awscc_sqs_queue"]
    assert [item["queue_name"] for item in queues.values()] == ["$${a}%%{b}", "$${a}"]
