def test_the_page_follows_the_table(tool):
    result = tool("gen_errors", "--check")
    assert result.returncode == 0, result.stdout


def test_every_row_is_on_the_page(repository):
    table = (repository / "src/base/error_code.h").read_text(encoding="utf-8")
    page = (repository / "docs/guide/errors.md").read_text(encoding="utf-8")
    names = [line.split('"')[1] for line in table.splitlines() if line.lstrip().startswith("X(")]
    assert len(names) > 50
    for name in names:
        assert f"| `{name}` |" in page
