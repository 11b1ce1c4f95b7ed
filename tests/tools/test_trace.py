import json

import pytest

TABLE = "\n".join([
    "id\tlevel\tmilestone\tsection\ttext",
    "ORCH-3004\tMUST\tM0\t5.2\tbounded queue",
    "ORCH-3005\tMUST\tM0\t5.2\tfull queue",
    "OC-ADAPT-OAI-6000\tMUST\tM1\t9\tadapter",
    "M0-W-1310\tMUST\tM0\t8.4\tevents",
    "SYS-7.5.1\tMUST\tM0\t4\treconnect",
    "SYS-8.2.1\tSHOULD\tM0\t19\tlatency",
]) + "\n"
TREE = {
    "contracts/requirements/requirements.tsv": TABLE,
    "contracts/requirements/clauses.tsv": "clause\ttext\nM0-W-1310#order\tin order\nM0-W-1310#bytes\twhole code points\n",
    "src/queue_test.cpp": "// ORCH-3004: bounded.\nTEST(Queue, IsBounded) {}\n\n// ORCH-3005\n\nTEST(Queue, NotRightAbove) {}\n"
                          "// ORCH-3005: full\n// second line, OC-ADAPT-OAI-6000\nTEST_P(Full, Rejects) {}\n"
                          "// M0-W-1310#order: as drawn\nTEST(Queue, IsOrdered) {}\n"
                          "// Control of M0-W-1310#order: one token is moved, and it is seen\nTEST(Queue, SeesDisorder) {}\n",
    "tests/e2e/test_stream.py": 'def test_resume():\n    """SYS-7.5.1: no gap."""\n\n\n# SYS-8.2.1\n@decorated\ndef test_fast():\n    pass\n',
}
GTEST = """<testsuites><testsuite><testcase name="IsBounded" classname="Queue" status="run" result="completed"/>
<testcase name="IsOrdered" classname="Queue" status="run"/><testcase name="SeesDisorder" classname="Queue" status="run"/>
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
        "M0-W-1310": "1 of 2", "ORCH-3004": "covered", "ORCH-3005": "failing", "SYS-7.5.1": "covered", "SYS-8.2.1": "skipped"}
    assert report["has_results"] and report["unknown"] == report["without_clause"] == []


def test_without_results_a_named_id_counts(trace):
    assert trace("--covered", results=False).stdout.split() == [
        "M0-W-1310#order", "OC-ADAPT-OAI-6000", "ORCH-3004", "ORCH-3005", "SYS-7.5.1", "SYS-8.2.1"]


def test_report_names_what_is_missing(trace):
    text = trace().stdout
    assert "MUST without a passing test of every clause: 2\n" in text
    assert "  ORCH-3005         failing   full queue\n" in text
    assert ("  M0-W-1310         1 of 2    events\n    #order                covered   in order\n"
            "    #bytes                untested  whole code points\n") in text
    assert "neither an end-to-end test nor a negative control: 1\n  ORCH-3004\n" in text
    assert "M0: 2 of 4 MUST covered, 1 of 4 by an end-to-end test or a negative control as well" in text
    assert "no test results" not in text


def covered_when(tool, write_tree, test):
    root = write_tree({**TREE, "src/x_test.cpp": test})
    report = json.loads(tool("trace", "--root", root, "--results", root / "none", "--json").stdout)
    (row,) = [row for row in report["requirements"] if row["id"] == "M0-W-1310"]
    return row["state"], row["proven"], report["without_clause"]


def test_an_id_with_clauses_needs_all_of_them(tool, write_tree):
    assert covered_when(tool, write_tree, "// M0-W-1310: all of it\nTEST(A, B) {}\n") == ("1 of 2", False, ["M0-W-1310"])
    assert covered_when(tool, write_tree, "// M0-W-1310#bytes\nTEST(A, B) {}\n") == ("covered", False, [])
    bytes_too = "// M0-W-1310#bytes\nTEST(A, B) {}\n// Control of M0-W-1310#bytes\nTEST(A, C) {}\n"
    assert covered_when(tool, write_tree, bytes_too) == ("covered", True, [])


def test_a_control_alone_covers_nothing(tool, write_tree):
    assert covered_when(tool, write_tree, "// Control of M0-W-1310#bytes\nTEST(A, C) {}\n")[0] == "1 of 2"


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
    families = {name.rpartition("-")[0] for name in ids}
    assert {"ORCH", "OC-CORE", "OC-CTRL", "M0-W", "POOL", "POOLREG", "AUTH", "SEC-AUTH", "SCHED", "HME", "AAPI", "SSE", "CLOUD",
            "NARR", "WORKER", "GPUINV", "CMATCH", "WLIFE", "TIMEOUT", "STREAM", "ERROPS", "CAPI", "PAPI"} <= families
    assert {row[1] for row in rows} == {"MUST", "SHOULD", "MAY", "INFO", "DECIDED"}
    assert {row[2] for row in rows} == {"M0", "M1", "M2", "M3"}


def test_clauses_are_of_known_ids_and_come_in_several(repository):
    ids = {line.split("\t")[0] for line in
           (repository / "contracts/requirements/requirements.tsv").read_text(encoding="utf-8").splitlines()[1:]}
    rows = [line.split("\t") for line in
            (repository / "contracts/requirements/clauses.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    assert all(len(row) == 2 and all(row) for row in rows)
    owners = [row[0].split("#")[0] for row in rows]
    assert len({row[0] for row in rows}) == len(rows) and set(owners) <= ids
    assert all(owners.count(name) > 1 for name in owners)


def test_every_claim_of_the_tree_is_of_something(tool, repository):
    report = json.loads(tool("trace", "--json").stdout)
    assert report["unknown"] == [] and report["without_clause"] == []


def test_nothing_once_covered_lost_its_test(tool, repository, tmp_path):
    result = tool("trace", "--results", tmp_path, "--covered", "--fail-on-regression",
                  repository / "contracts/requirements/covered.txt")
    assert result.returncode == 0, result.stderr
