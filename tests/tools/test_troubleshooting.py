"""docs/guide/troubleshooting.md speaks of what there is: codes, reasons, keys, commands."""

import re

import pytest


@pytest.fixture(name="page")
def troubleshooting(repository):
    return (repository / "docs/guide/troubleshooting.md").read_text(encoding="utf-8")


def sources(repository, *rooms):
    return "\n".join(path.read_text(encoding="utf-8") for room in rooms for path in (repository / room).rglob("*") if path.suffix in (".h", ".cpp"))


def test_every_reason_to_wait_has_a_row_and_no_other(page, repository):
    text = sources(repository, "src/orchestratord", "src/wire")
    reasons = {name for name in re.findall(r'"(WAITING_FOR_[A-Z_]+)"', text) if not name.endswith("_")}
    assert len(reasons) > 8
    assert set(re.findall(r"`(WAITING_FOR_[A-Z_]+)`", page)) == reasons


def test_codes_and_keys_exist(page, repository):
    errors = (repository / "docs/guide/errors.md").read_text(encoding="utf-8")
    known = set(re.findall(r"`([A-Z][A-Z_]{4,})`", errors)) | {"CONTEXT_TOO_LARGE"}
    named = {code for code in re.findall(r"`([A-Z][A-Z]+_[A-Z_]+)`", page) if not code.startswith("WAITING_FOR_")}
    assert named - known == set()
    keys = set(re.findall(r"`([a-z-]+(?:\.[a-z_]+)+)`", (repository / "docs/guide/configuration.md").read_text(encoding="utf-8")))
    assert {key for key in re.findall(r"`((?:orchestratord|pool-managerd|models)\.[a-z_.]+)`", page)} - keys == set()


def test_commands_exist(page, repository):
    cli = (repository / "docs/guide/cli.md").read_text(encoding="utf-8")
    for command in set(re.findall(r"`llorch ((?:pool |debug |config )?[a-z]+)[ `]", page)):
        assert re.search(rf"`{command}[ `\[]", cli), command
