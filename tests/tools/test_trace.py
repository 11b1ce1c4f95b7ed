import json

import pytest

TABLE = "\n".join([
    "id\tlevel\tmilestone\tsection\ttext",
    "ORCH-3004\tMUST\tM0\t5.2\tbounded queue",
    "ORCH-3005\tMUST\tM0\t5.2\tfull queue",
    "OC-ADAPT-OAI-6000\tMUST\tM1\t9\tadapter",
    "SYS-7.5.1\tMUST\tM0\t4\treconnect",
    "SYS-8.2.1\tSHOULD\tM0\t19\tlatency",
]) + "\n"
TREE = {
    "contracts/requirements/requirements.tsv": TABLE,
    "src/queue_test.cpp": "// ORCH-3004: bounded.\nTEST(Queue, IsBounded) {}\n\n// ORCH-3005\n\nTEST(Queue, NotRightAbove) {}\n"
                          "// ORCH-3005: full\n// second line, OC-ADAPT-OAI-6000\nTEST_P(Full, Rejects) {}\n",
    "tests/e2e/test_stream.py": 'def test_resume():\n    """SYS-7.5.1: no gap."""\n\n\n# SYS-8.2.1\n@decorated\ndef test_fast():\n    pass\n',
}
GTEST = """<testsuites><testsuite><testcase name="IsBounded" classname="Queue" status="run" result="completed"/>
<testcase name="Rejects/0" classname="All/Full" status="run" result="completed"/>
<testcase name="Rejects/1" classname="All/Full" status="run" result="completed"><failure/></testcase></testsuite></testsuites>"""
PYTEST = """<testsuites><testsuite><testcase classname="tests.e2e.test_stream" name="test_resume"/>
<testcase classname="tests.e2e.test_stream" name="test_fast[1]"><skipped/></testcase></testsuite></testsuites>"""


@pytest.fixture
def trace(tool, write_tree):
    def run(*arguments, results=True):
        files = {"r/gtest/q.xml": GTEST, "r/pytest/e2e.xml": PYTEST} if results else {}
        root = write_tree({**TREE, **files})
        return tool("trace", "--root", root, "--results", root / "r", *arguments)

    return run


def test_results_decide(trace):
    report = json.loads(trace("--json").stdout)
    assert {row["id"]: row["state"] for row in report["requirements"]} == {
        "ORCH-3004": "covered", "ORCH-3005": "failing", "SYS-7.5.1": "covered", "SYS-8.2.1": "skipped"}
    assert report["has_results"] and report["unknown"] == []


def test_without_results_a_named_id_counts(trace):
    assert trace("--covered", results=False).stdout.split() == [
        "OC-ADAPT-OAI-6000", "ORCH-3004", "ORCH-3005", "SYS-7.5.1", "SYS-8.2.1"]


def test_report_names_what_is_missing(trace):
    text = trace().stdout
    assert "MUST without a passing test: 1\n  ORCH-3005         failing   full queue\n" in text
    assert "M0: 2 of 3 MUST covered" in text
    assert "no test results" not in text


def test_regression_fails(trace, tmp_path):
    baseline = tmp_path / "covered.txt"
    baseline.write_text("ORCH-3004\nSYS-7.5.1\n")
    assert trace("--fail-on-regression", baseline).returncode == 0
    baseline.write_text("ORCH-3004\nORCH-3005\n")
    result = trace("--fail-on-regression", baseline)
    assert result.returncode == 1
    assert result.stderr == "regression: ORCH-3005 was covered and is failing\n"


def test_unknown_ids_are_named(tool, write_tree):
    root = write_tree({**TREE, "src/x_test.cpp": "// ORCH-9999\nTEST(A, B) {}\n"})
    assert "unknown id ORCH-9999" in tool("trace", "--root", root).stdout


def test_the_table_is_complete_and_well_formed(repository):
    rows = [line.split("\t") for line in
            (repository / "contracts/requirements/requirements.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    assert all(len(row) == 5 and all(row) for row in rows)
    ids = [row[0] for row in rows]
    assert len(ids) == len(set(ids))
    assert sum(name.startswith("SYS-") for name in ids) == 80
    # All 172 of the first catalogue; ids of the documents behind it join when a test names them.
    assert sum(not name.startswith("SYS-") for name in ids) >= 172
    assert {row[1] for row in rows} == {"MUST", "SHOULD", "MAY", "INFO"}
    assert {row[2] for row in rows} == {"M0", "M1", "M2", "M3"}


def test_no_test_of_the_tree_names_an_unknown_id(tool, repository):
    assert json.loads(tool("trace", "--json").stdout)["unknown"] == []


def test_nothing_once_covered_lost_its_test(tool, repository, tmp_path):
    result = tool("trace", "--results", tmp_path, "--covered", "--fail-on-regression",
                  repository / "contracts/requirements/covered.txt")
    assert result.returncode == 0, result.stderr
