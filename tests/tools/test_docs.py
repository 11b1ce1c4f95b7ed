import re
import shutil

import pytest


def pages(repository):
    found = [page for page in repository.rglob("*.md") if not set(page.relative_to(repository).parts) & {"build", ".git", ".venv"}]
    assert len(found) > 20
    return found


def test_links_between_pages_lead_somewhere(repository):
    broken = []
    for page in pages(repository):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(repository)}: {target}")
    assert broken == []


def test_every_table_has_a_head(repository):
    """A row behind an empty line is no row of the table before it, and is shown as it is written."""
    lost = []
    for page in pages(repository):
        lines = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL).splitlines()
        for before, line, after in zip(["", *lines], lines, [*lines[1:], ""]):
            if line.startswith("|") and not before.startswith("|") and not re.fullmatch(r"\|([ :-]*-[ :-]*\|)+", after.strip()):
                lost.append(f"{page.relative_to(repository)}: {line}")
    assert lost == []


def test_pages_keep_their_length(repository):
    assert (repository / "ARCHITECTURE.md").read_text(encoding="utf-8").count("\n") <= 400
    for directory, lines_max in (("docs/adr", 80), ("docs/internals", 120)):
        pages = [page for page in (repository / directory).glob("*.md") if page.name != "README.md"]  # it has a line for each page
        # A table is as long as what it lists.
        lengths = {page.name: len([line for line in page.read_text(encoding="utf-8").splitlines() if not line.startswith("|")]) for page in pages}
        long = {name for name, lines in lengths.items() if lines > lines_max}
        assert long == set()


def test_the_threat_model_names_tests_that_there_are(repository):
    page = (repository / "docs/internals/threat-model.md").read_text(encoding="utf-8")
    threats = [line for line in page.split("## Threats")[1].splitlines() if line.startswith("| ")][1:]
    assert len(threats) > 15
    for threat in threats:
        name = re.search(r"\| `([\w/.]+)(?:::(\w+))?` \|$", threat)
        assert name, threat
        file = repository / name[1]
        assert file.exists(), threat
        assert not name[2] or re.search(rf"\b{name[2]}\b", file.read_text(encoding="utf-8")), threat


def test_pages_name_files_that_there_are(repository):
    """What a page writes as `file.h`, `a/file.{h,cpp}` or `directory/` is beside the page or somewhere in the tree."""
    tree = [path.relative_to(repository).as_posix() for top in ("src", "sim", "tests", "bench", "contracts", "docs", "tools", "models",
                                                                "packaging", "cmake") for path in (repository / top).rglob("*")]
    tree += [path.name for path in repository.iterdir()]
    ends = {"/".join(parts[-n:]) for parts in (path.split("/") for path in tree) for n in range(1, len(parts) + 1)}
    missing = []
    for page in pages(repository):
        where = page.relative_to(repository).as_posix()
        if not where.startswith(("src/", "sim/", "tests/", "bench/serve", "docs/internals/", "ARCHITECTURE", "CONTRIBUTING")):
            continue
        for name in re.findall(r"`([\w./{},-]+)`", page.read_text(encoding="utf-8")):
            braces = re.fullmatch(r"(.*)\{(.*)\}(.*)", name)
            for one in [f"{braces[1]}{end}{braces[3]}" for end in braces[2].split(",")] if braces else [name]:
                if re.search(r"\w\.(h|cpp|cu|py|sql|txt)$", one) or re.fullmatch(r"[a-z_]\w*(/\w+)*/", one):
                    if one.strip("/").removeprefix("../").removeprefix("../") not in ends and (where, one) not in MADE_ELSEWHERE:
                        missing.append(f"{where}: {one}")
    assert missing == []


# (page, name): files of a running system, of an example or of a run.
MADE_ELSEWHERE = {("ARCHITECTURE.md", "self_test/"), ("ARCHITECTURE.md", "contracts/sql/NNNN_what.sql"),
                  ("docs/internals/gpu-bring-up.md", "RESULTS/summary.txt"), ("docs/internals/gpu-bring-up.md", "RESULTS/table.txt")}

# Words that were given up for the field's: docs/adr/0040.
RETIRED = re.compile(r"(?i)\b(goodbyes?|brain\w*|programmes?|drawers?|folders?|(de)?quantis\w+|twins?|\w*carver\w*|"
                     r"\w*pool_?orders|set_?orders|stream_?log|room_bytes\w*|claimed_by|give_up_claims|told_gone|desks?|\w*desk_\w*)\b")


def test_retired_words_stay_retired(repository):
    found = []
    for top in ("src", "sim", "tests", "bench/serve", "bench/micro", "tools", "docs/guide", "docs/internals"):
        for path in sorted((repository / top).rglob("*")):
            if path.suffix in (".h", ".cpp", ".cu", ".md", ".py", ".txt") and path.name != "test_docs.py" and "corpus" not in path.parts:
                for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
                    if (word := RETIRED.search(line)) and "docs/adr" not in line and not re.search(r"\]\(.*adr/", line):
                        found.append(f"{path.relative_to(repository)}:{number}: {word[0]}")
    assert found == []


DECISION_PARTS = ("Context", "Decision", "Alternatives", "Consequences", "How we would know it is wrong")
# Pages from before all parts were asked for; pages are not rewritten.
WITHOUT_PART = {("0012", "Alternatives"), ("0018", "Alternatives"),
                *((number, "How we would know it is wrong") for number in ("0012", "0013", "0014", "0018", "0031"))}


def test_decisions_are_written_as_decided(repository):
    """ORCH-3030: what changes an interface or a promise is decided on a page of one form, listed, and never rewritten: replaced."""
    index = (repository / "docs/adr/README.md").read_text(encoding="utf-8")
    decisions = {page.name: page.read_text(encoding="utf-8") for page in sorted((repository / "docs/adr").glob("[0-9]*.md"))}
    numbers = [name[:4] for name in decisions]
    assert len(numbers) > 50 and len(numbers) == len(set(numbers)), "numbers are never reused"
    assert re.findall(r"^- \[(\d{4})\]", index, re.M) == numbers
    for name, text in decisions.items():
        assert re.match(rf"# {name[:4]}\b|Replaced by \d{{4}}", text), name
        parts = re.findall(rf"^(?:\*\*|## )({'|'.join(DECISION_PARTS)})\b", text, re.M)
        assert parts == [part for part in DECISION_PARTS if part in parts or (name[:4], part) not in WITHOUT_PART], (name, parts)
        for old in re.findall(r"\bReplaces (\d{4})", text):
            replaced = next(text for other, text in decisions.items() if other.startswith(old))
            assert f"Replaced by {name[:4]}" in "\n".join(replaced.splitlines()[:3]), (name, old)


def edited(name, old, new):
    def plant(pages):
        page = next(pages.glob(name))
        page.write_text(page.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    return plant


def copied(name, to):
    return lambda pages: shutil.copy(next(pages.glob(name)), pages / to)


@pytest.mark.parametrize("plant", [edited("0009-*.md", "**Alternatives", "**Other"), copied("0009-*.md", "0009-another.md"),
                                   copied("0009-*.md", "0999-new.md"), edited("0009-*.md", "\n", "\nReplaces 0008.\n")],
                         ids=["part", "number", "list", "replaced"])
def test_a_decision_that_is_not_written_as_decided_is_found(repository, tmp_path, plant):
    """A page lacks a part, has another's number, is not listed, or replaces one that does not say so.

    Control of ORCH-3030"""
    shutil.copytree(repository / "docs/adr", tmp_path / "docs/adr")
    plant(tmp_path / "docs/adr")
    with pytest.raises(AssertionError):
        test_decisions_are_written_as_decided(tmp_path)
