import importlib.machinery
import importlib.util
import shutil

import pytest


@pytest.fixture
def table(repository):
    loader = importlib.machinery.SourceFileLoader("gen_family_table", str(repository / "tools/gen_family_table"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@pytest.fixture
def models(repository, tmp_path):
    for name in ("families", "plan_compiler"):
        shutil.copytree(repository / "src/engine/models" / name, tmp_path / name)
    shutil.copy(repository / "src/engine/models/registry.cpp", tmp_path)
    return tmp_path


def test_the_page_follows_the_files(tool):
    result = tool("gen_family_table", "--check")
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_further_line_makes_the_page_stale(table, models):
    page = table.render(models)
    with open(models / "families/olmoe.cpp", "a", encoding="utf-8") as file:
        file.write("// one more\n")
    assert table.render(models) != page


def test_a_family_of_too_many_lines_is_refused_by_name(table, models):
    with open(models / "families/olmoe.cpp", "a", encoding="utf-8") as file:
        file.write("//\n" * table.LINES_MAX)
    with pytest.raises(SystemExit, match="olmoe.cpp"):
        table.render(models)


def test_an_operation_comes_with_the_first_family_that_uses_it(table, models):
    rows = {name: new for name, _, _, new in table.read_families(models)}
    assert rows["granite_hybrid.cpp"] == ["MambaMixer"]
    assert rows["mamba2.cpp"] == []
    assert "MlaAttention" in rows["deepseek.cpp"]


def test_every_family_has_a_file(repository, table, models):
    page = (repository / "docs/internals/families.md").read_text(encoding="utf-8").split("|---|---|---|---|\n")[1]
    documented = [line.split(" | ")[0].removeprefix("| ") for line in page.split("\n\n")[0].splitlines()]
    listed = [family for _, families, _, _ in table.read_families(models) for family in families]
    assert sorted(listed) == sorted(documented)
