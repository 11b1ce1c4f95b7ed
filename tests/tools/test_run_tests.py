"""tools/run_tests counts what ran and never calls a crash a success."""
import importlib.machinery
import importlib.util
import shutil

import pytest


@pytest.fixture
def run_tests(repository):
    loader = importlib.machinery.SourceFileLoader("run_tests", str(repository / "tools/run_tests"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("run_tests", loader))
    loader.exec_module(module)
    return module


PROGRAMS = {
    # Writes its cases as a GoogleTest binary does, then exits with the status given.
    "good_test": 'echo \'<t><testcase name="A"/><testcase name="B" result="skipped"/></t>\' >"${GTEST_OUTPUT#xml:}good_test.xml"',
    "bad_test": 'echo \'<t><testcase name="A"/><testcase name="B"><failure/></testcase></t>\' >"${GTEST_OUTPUT#xml:}bad_test.xml"\nexit 1',
    "crash_after_test": 'echo \'<t><testcase name="A"/></t>\' >"${GTEST_OUTPUT#xml:}crash_after_test.xml"\nkill -SEGV $$',
    "crash_test": "kill -SEGV $$",
    "plain_replay": "true",
}


def make_build(directory, names):
    lines = []
    for name in names:
        (directory / name).write_text(f"#!/bin/sh\n{PROGRAMS[name]}\n")
        (directory / name).chmod(0o755)
        lines.append(f'add_test({name} "{directory / name}")')
    (directory / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("names, expected", [
    (["good_test"], "1 passed, 0 failed, 1 skipped"),
    (["good_test", "plain_replay"], "2 passed, 0 failed, 1 skipped"),
    (["bad_test"], "1 passed, 1 failed, 0 skipped"),
    (["crash_after_test"], "1 passed, 1 failed, 0 skipped"),
    (["crash_test", "good_test"], "1 passed, 1 failed, 1 skipped"),
])
def test_ctest_is_counted_by_case(run_tests, tmp_path, names, expected):
    if shutil.which("ctest") is None:
        pytest.skip("ctest is not installed")
    make_build(tmp_path, names)
    tally = run_tests.Tally()
    run_tests.run_ctest(tmp_path, 2, tmp_path / "results", tally)
    assert str(tally) == expected


def test_pytest_is_counted_by_case(run_tests, tmp_path):
    directory = tmp_path / "suite"
    directory.mkdir()
    (directory / "test_x.py").write_text("import pytest\ndef test_a(): pass\ndef test_b(): assert 0\ndef test_c(): pytest.skip('no')\n")
    tally = run_tests.Tally()
    run_tests.run_pytest([directory], 2, tmp_path, tally)
    assert str(tally) == "1 passed, 1 failed, 1 skipped"


def test_a_suite_that_does_not_import_fails(run_tests, tmp_path):
    directory = tmp_path / "suite"
    directory.mkdir()
    (directory / "test_x.py").write_text("import no_such_module\n")
    tally = run_tests.Tally()
    run_tests.run_pytest([directory], 2, tmp_path, tally)
    assert tally.failed == 1 and tally.passed == 0
