import json
import re

import pytest


def leaves(schema):
    for key, child in schema["properties"].items():
        if "properties" in child:
            yield from (f"{key}.{below}" for below in leaves(child))
        else:
            yield key
            if "properties" in child.get("items", {}):
                yield from (f"{key}[].{below}" for below in leaves(child["items"]))


def test_the_page_follows_the_schema(tool):
    result = tool("gen_config_docs", "--check")
    assert result.returncode == 0, result.stdout


# OC-CONFIG-6010 SYS-8.4.3#documented: every key of the schema is explained.
def test_every_key_has_a_row_and_a_meaning(repository):
    schema = json.loads((repository / "contracts/schema/config.json").read_text(encoding="utf-8"))
    page = (repository / "docs/guide/configuration.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    keys = list(leaves(schema))
    assert len(keys) > 40
    for key in keys:
        assert rows[key].split("|")[-2].strip(), f"{key} has no description in src/config/config.cpp"
    assert set(rows) == set(keys)


# OC-CONFIG-6030#bind OC-CONFIG-6030#token OC-CONFIG-6030#optional: keys of the minimal auth seam, one of each.
def test_the_auth_seam_has_its_keys(repository):
    keys = list(leaves(json.loads((repository / "contracts/schema/config.json").read_text(encoding="utf-8"))))
    for key in ("orchestratord.bind", "pool-managerd.bind", "auth.token_file", "auth.optional_on_loopback"):
        assert keys.count(key) == 1, key


# SYS-8.4.3#set: what bounds scaling can be set.
def test_scaling_can_be_set(repository):
    keys = set(leaves(json.loads((repository / "contracts/schema/config.json").read_text(encoding="utf-8"))))
    scaling = ("limits.workers_per_gpu", "worker_slots", "queue.capacity", "heartbeat.interval_ms",
               "heartbeat.missed_threshold")
    assert {f"orchestratord.{key}" for key in scaling} <= keys


def check(value, schema, path):
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
    assert isinstance(value, kinds[schema["type"]]), path
    assert value in schema.get("enum", [value]), path
    if schema["type"] in ("integer", "number"):
        assert schema.get("minimum", value) <= value <= schema.get("maximum", value), path
    if schema["type"] == "object":
        for key, item in value.items():
            child = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            assert child, f"{path}.{key} is no key"
            check(item, child, f"{path}.{key}")
        assert set(schema.get("required", [])) <= set(value), path
    if schema["type"] == "array":
        for item in value:
            check(item, schema["items"], f"{path}[]")


# OC-CONFIG-6002: what the documentation shows as configuration is valid.
def test_the_examples_of_the_documentation_are_valid(repository):
    yaml = pytest.importorskip("yaml")
    schema = json.loads((repository / "contracts/schema/config.json").read_text(encoding="utf-8"))
    count = 0
    for page in [repository / "README.md", *sorted((repository / "docs").rglob("*.md"))]:
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            check(yaml.safe_load(block), schema, page.name)
            count += 1
    assert count > 0
    with pytest.raises(AssertionError):
        check({"orchestratord": {"no_such_key": 1}}, schema, "bad")
    with pytest.raises(AssertionError):
        check({"orchestratord": {"queue": {"capacity": "many"}}}, schema, "bad")


# OC-CONFIG-6031: so are the examples of the schema.
def test_the_examples_of_the_schema_are_valid(repository):
    schema = json.loads((repository / "contracts/schema/config.json").read_text(encoding="utf-8"))
    assert len(schema["examples"]) == 3
    for example in schema["examples"]:
        check(example, schema, "examples")
