import json


def leaves(schema):
    for key, child in schema["properties"].items():
        if "properties" in child:
            yield from (f"{key}.{below}" for below in leaves(child))
        else:
            yield key


def test_the_page_follows_the_schema(tool):
    result = tool("gen_config_docs", "--check")
    assert result.returncode == 0, result.stdout


# OC-CONFIG-6010: every key of the schema is explained.
def test_every_key_has_a_row_and_a_meaning(repository):
    schema = json.loads((repository / "contracts/schema/config.json").read_text(encoding="utf-8"))
    page = (repository / "docs/guide/configuration.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    keys = list(leaves(schema))
    assert len(keys) > 40
    for key in keys:
        assert rows[key].split("|")[-2].strip(), f"{key} has no description in src/contract/config.cpp"
    assert set(rows) == set(keys)
