import json


def test_the_newest_time_of_each_unit_counts(tool, tmp_path):
    lines = ["# ninja log v5", "0\t9000\t1\tsrc/a/CMakeFiles/a.dir/x.cpp.o\tf", "0\t2000\t2\tsrc/a/CMakeFiles/a.dir/x.cpp.o\tf",
             "500\t1500\t3\tsrc/b/CMakeFiles/b.dir/y.cpp.o\tf", "0\t250\t4\tbin/b\tf"]
    (tmp_path / ".ninja_log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    report = json.loads(tool("build_report", str(tmp_path), "--json").stdout)
    assert (report["units"], report["compile_s"], report["other_s"]) == (2, 3.0, 0.2)
    assert report["directories"] == {"src/a": 2.0, "src/b": 1.0}


def test_a_tree_that_was_not_built_says_what_to_do(tool, tmp_path):
    result = tool("build_report", str(tmp_path))
    assert result.returncode != 0 and "make build" in result.stderr
