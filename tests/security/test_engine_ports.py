"""Another process at the port of an engine that is started here: it answers as the engine would, and gets neither prompt nor key."""

import contextlib
import json
import pathlib
import subprocess
import sys
import types

import pytest

from adapter import Adapter, one_end
from fake_engine import FakeEngine
from stack import HANG_S, wait_for

# Tells its port and its key, and serves behind "serve" until "leave", in a process of its own, as engines do.
PROGRAM = """
import multiprocessing, os, pathlib, sys, time
here, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
sys.path.insert(0, sys.argv[3])
from fake_engine import FakeEngine
def awaited(name, parent=None):
    parent = parent or os.getppid()
    while not (here / name).exists():
        if os.getppid() != parent:
            sys.exit()
        time.sleep(0.01)
def serve():
    awaited("serve")
    engine = FakeEngine("llamacpp", port=port, key=os.environ["LLAMA_API_KEY"])
    awaited("leave")
    engine.close()
    (here / "left").touch()
    awaited("never")
if __name__ == "__main__":
    (here / "key").write_text(os.environ["LLAMA_API_KEY"])
    (here / "port.new").write_text(str(port))
    (here / "port.new").rename(here / "port")
    multiprocessing.get_context("fork").Process(target=serve, daemon=True).start()
    awaited("never")
"""


@pytest.fixture
def adapter(tmp_path, request):
    (tmp_path / "engine.py").write_text(PROGRAM)
    at = types.SimpleNamespace(kind="llamacpp", url="http://127.0.0.1:{port}", model="tale")
    tests = pathlib.Path(sys.modules[FakeEngine.__module__].__file__).parent
    command = [sys.executable, str(tmp_path / "engine.py"), str(tmp_path), "{port}", str(tests)]
    one = Adapter(at, more=["--probe-interval-ms", str(getattr(request, "param", 50)), "--", *command])
    yield one
    with contextlib.suppress(Exception):
        one.__exit__()


def port_of(directory):
    wait_for("the engine's process", (directory / "port").exists)
    return int((directory / "port").read_text())


def test_an_engine_at_its_port_serves_with_a_key_of_its_own(adapter, tmp_path):
    (tmp_path / "serve").touch()
    adapter.__enter__()
    assert one_end(adapter.run()).name == "end"
    key = (tmp_path / "key").read_text()
    assert len(key) == 64 and key not in adapter.log()
    command_lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path / "engine.py") in command_lines and key not in command_lines


def test_whoever_takes_the_port_first_is_no_engine(adapter, tmp_path):
    with FakeEngine("llamacpp", port=port_of(tmp_path)) as impostor:
        with pytest.raises(AssertionError, match="where the engine should"):
            adapter.__enter__()
        assert impostor.requests == []
    assert "WORKER_START_FAILED" in adapter.log()


def test_whoever_takes_the_port_later_ends_the_worker(adapter, tmp_path):
    (tmp_path / "serve").touch()
    adapter.__enter__()
    (tmp_path / "leave").touch()
    wait_for("the engine to close its port", (tmp_path / "left").exists)
    with FakeEngine("llamacpp", port=port_of(tmp_path)) as impostor:
        assert adapter.process.wait(HANG_S) == 1
        assert impostor.requests == []
    ended = [json.loads(line) for line in adapter.log().splitlines() if '"WORKER_RESET"' in line]
    assert len(ended) == 1


@pytest.mark.parametrize("adapter", [600_000], indirect=True)
def test_whoever_takes_the_port_between_two_probes_is_sent_no_job(adapter, tmp_path):
    """Each job looks before it is sent: one while nobody listens waits for the engine, one while somebody else does ends the worker."""
    (tmp_path / "serve").touch()
    adapter.__enter__()
    assert one_end(adapter.run()).name == "end"
    (tmp_path / "leave").touch()
    wait_for("the engine to close its port", (tmp_path / "left").exists)
    assert one_end(adapter.run()).data["code"] == "UNREACHABLE"
    with FakeEngine("llamacpp", port=port_of(tmp_path)) as impostor:
        assert one_end(adapter.run()).data["code"] == "WORKER_RESET"
        assert impostor.requests == []
        assert adapter.process.wait(HANG_S) == 1
        assert impostor.requests == []
