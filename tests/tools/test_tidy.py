"""Rules of the tree that no compiler checks."""
import os
import re

import pytest

SKIPPED_DIRECTORYS = {".git", "build", ".venv", ".cache", ".pytest_cache", "__pycache__"}
# Data, not text of ours: seeds of fuzzers, recorded vectors, models.
DATA_DIRECTORYS = ("tests/fuzz/corpus/", "tests/golden/", "models/")
TABS_ALLOWED = {"Makefile", "contracts/requirements/requirements.tsv", "contracts/requirements/clauses.tsv"}
LINES_MAX = 800
LONGER_FILES = {"LICENSE"}  # path -> may exceed LINES_MAX
README_LINES_MAX = 30


@pytest.fixture(scope="module")
def texts():
    """{path: text} of every text file of the tree."""
    from conftest import REPOSITORY
    found = {}
    for directory, directories, files in os.walk(REPOSITORY):
        directories[:] = sorted(set(directories) - SKIPPED_DIRECTORYS)
        for name in files:
            path = os.path.relpath(os.path.join(directory, name), REPOSITORY)
            if path.startswith(DATA_DIRECTORYS) or "/golden/" in path or path == ".git":
                continue
            with open(os.path.join(directory, name), "rb") as file:
                content = file.read()
            if b"\0" not in content:
                found[path] = content.decode("utf-8")
    assert len(found) > 50
    return found


def lines_matching(texts, pattern):
    return [f"{path}:{number}: {line.strip()}" for path, text in texts.items()
            for number, line in enumerate(text.split("\n"), 1) if re.search(pattern, line)]


def is_cpp(path):
    return path.endswith((".h", ".cpp", ".cu", ".cuh"))


def has_readme(directory, texts):
    return directory != "src" and (f"{directory}/README.md" in texts or has_readme(os.path.dirname(directory), texts))


def test_no_tabs(texts):
    assert lines_matching({p: t for p, t in texts.items() if p not in TABS_ALLOWED}, "\t") == []


def test_no_trailing_space(texts):
    assert lines_matching(texts, r"[ \t\r]$") == []


def test_files_end_with_one_newline(texts):
    assert [path for path, text in texts.items() if text and (not text.endswith("\n") or text.endswith("\n\n"))] == []


def test_headers_have_pragma_once(texts):
    # *_impl.h are bodies that each instruction set includes into a namespace of its own.
    headers = {path: text for path, text in texts.items()
               if path.startswith("src/") and path.endswith(".h") and not path.endswith("_impl.h")}
    assert headers
    assert [path for path, text in headers.items() if not re.search(r"^#pragma once$", text, re.MULTILINE)] == []


def test_files_stay_readable_in_one_sitting(texts):
    own = {path: text.count("\n") for path, text in texts.items()
           if path not in LONGER_FILES and (is_cpp(path) or path.endswith(".py") or path.startswith("tools/"))}
    assert {path: count for path, count in own.items() if count > LINES_MAX} == {}


def test_nothing_is_left_to_do_in_the_source(texts):
    assert lines_matching({p: t for p, t in texts.items() if p.startswith("src/")}, r"\b(TODO|FIXME|XXX)\b") == []


def test_source_directories_say_what_they_are_for(texts):
    directories = {os.path.dirname(path) for path in texts if path.startswith("src/") and is_cpp(path)}
    # A subdirectory may rely on the page of a directory above it.
    assert sorted(directory for directory in directories if not has_readme(directory, texts)) == []
    long = {path: text.count("\n") for path, text in texts.items() if re.fullmatch(r"src/.*README\.md", path)}
    assert {path: count for path, count in long.items() if count > README_LINES_MAX} == {}


def test_decisions_are_numbered_once_and_listed(texts):
    pages = [os.path.basename(path) for path in texts if re.fullmatch(r"docs/adr/\d{4}-.*\.md", path)]
    numbers = [page[:4] for page in pages]
    assert len(numbers) == len(set(numbers))
    assert [page for page in pages if page not in texts["docs/adr/README.md"]] == []


def test_tools_are_executable_and_start_with_an_interpreter(texts, repository):
    tools = [path for path in texts if re.fullmatch(r"tools/[^/.]+|\.ci/run", path)]
    assert tools
    assert [path for path in tools if not texts[path].startswith("#!") or not os.access(repository / path, os.X_OK)] == []


def test_cpp_is_formatted(tool):
    result = tool("format", "--check")
    if result.returncode == 3:
        pytest.skip(result.stdout.strip())
    assert result.returncode == 0, result.stderr[-4000:]
