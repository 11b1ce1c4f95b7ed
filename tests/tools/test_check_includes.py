import pytest


def test_the_tree_keeps_its_rules(tool):
    """ORCH-3252: the queue and placement see no room that does I/O."""
    result = tool("check_includes")
    assert result.returncode == 0, result.stdout


GOOD = {
    "src/base/result.h": "#pragma once\n",
    "src/wire/task.h": '#include "base/result.h"\n',
    "src/net/server.cpp": '#include <boost/asio/ip/tcp.hpp>\n#include "base/result.h"\n',
    "src/engine/plan/plan.h": '#include "base/result.h"\n',
    "src/engine/models/model.h": '#include "engine/plan/plan.h"\n',
    "src/engine/models/families/llama.h": "#pragma once\n",
    "src/engine/compute/cpu/cpu_backend.h": '#include "engine/plan/plan.h"\n',
    "src/engine/compute/cpu/kernels.h": "// a token of thanks to llama\n#pragma once\nconst char* k = \"prompt\";\n",
    "src/engine/inference/engine.cpp": '#include "engine/models/model.h"\n#include "engine/compute/cpu/cpu_backend.h"\n',
    "src/worker/app.h": '#include "wire/task.h"\n',
    "src/orchestratord/core/core.h": '#include "wire/task.h"\n',
    "src/orchestratord/store/store.h": '#include "orchestratord/core/core.h"\n',
}


def test_a_good_tree_passes(tool, write_tree):
    result = tool("check_includes", "--root", write_tree(GOOD))
    assert result.returncode == 0, result.stdout
    assert "12 files, 0 problems" in result.stdout


@pytest.mark.parametrize("path, text, message", [
    ("src/base/up.h", '#include "wire/task.h"\n', "src/base/up.h:1: base -> wire/task.h: base may include only: base"),
    ("src/orchestratord/http/x.cpp", '\n#include "worker/app.h"\n', "src/orchestratord/http/x.cpp:2: orchestratord/http -> worker/app.h"),
    ("src/worker/x.cpp", '#include "orchestratord/core/core.h"\n', "worker -> orchestratord/core/core.h"),
    ("src/orchestratord/http/x.cpp", '#include "engine/models/model.h"\n', "orchestratord/http -> engine/models/model.h"),
    ("src/orchestratord/core/x.cpp", '#include "orchestratord/store/store.h"\n', "orchestratord/core -> orchestratord/store/store.h"),
    ("src/engine/models/x.cpp", '#include "engine/compute/cpu/cpu_backend.h"\n', "engine/models -> engine/compute"),
    ("src/engine/inference/x.cpp", '#include "engine/models/families/llama.h"\n', "no other area sees a model family"),
    ("src/engine/inference/x.cpp", '#  include "engine/compute/cpu/kernels.h"\n', "by a backend's own header"),
    ("src/worker/x.cpp", '#include <boost/beast.hpp>\n', "sockets and event loops live in net"),
    ("src/worker/x.cpp", '#include "app.h"\n', "includes are relative to src/"),
    ("src/worker/x.cpp", '#include "worker/gone.h"\n', "name an existing header"),
    ("src/extra/x.cpp", "", "belongs to no area"),
    ("src/engine/compute/x.cpp", "\n\nint token_count;\n", "src/engine/compute/x.cpp:3: identifier token_count"),
    ("src/engine/compute/x.cpp", "/* one\ntwo */ void ropeLlama3();\n", "src/engine/compute/x.cpp:2: identifier ropeLlama3"),
    ("src/engine/compute/x.cpp", 'auto s = "//"; int QwenDim;\n', "identifier QwenDim"),
])
def test_a_bad_edge_is_found(tool, write_tree, path, text, message):
    """Control of ORCH-3252"""
    result = tool("check_includes", "--root", write_tree({**GOOD, path: text}))
    assert result.returncode == 1
    assert message in result.stdout
    assert "1 problems" in result.stdout
