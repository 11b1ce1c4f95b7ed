"""Whom llorch sends the operator's token to when nobody has said where orchestratord answers."""

import http.server
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading

import pytest

from said_server import SaidServer
from stack import BIN, HANG_S, MODEL, Stack, clean_env, llorch, wait_for

TOKEN = "t" * 40
ENV = {"LLORCH_API_TOKEN": TOKEN}
ANSWERS = {"/v2/tasks": {"tasks": []}}
# Listens until it is told to end, and says whether anybody came.
STRANGER = """
import select, socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print(server.getsockname()[1], flush=True)
    sys.stdin.readline()
    print("came" if select.select([server], [], [], 0)[0] else "nobody", flush=True)
"""


def record(state, bind, pid, start_ticks):
    (state / "run").mkdir(mode=0o700, exist_ok=True)
    (state / "run/orchestratord.json").write_text(json.dumps({"pid": pid, "start_ticks": start_ticks, "bind": bind}))


def own_addresses():
    """What packets to elsewhere would be sent from, where there is a way."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.9", 9))
        except OSError:
            return []
        return [probe.getsockname()[0]]


def start_ticks(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_a_record_of_a_process_that_has_ended_is_nobodys_address(tmp_path):
    with SaidServer(answers=ANSWERS) as server:
        bind = ["--set", f"orchestratord.bind={server.bind}"]
        for pid, ticks in ((os.getpid(), start_ticks(os.getpid()) + 1), (2**22 + 1, 1)):
            record(tmp_path, server.bind, pid, ticks)
            done = llorch(*bind, "ps", state_dir=tmp_path, env=ENV)
            assert done.returncode == 3 and b"llorch up" in done.stderr and b"--url" in done.stderr, done.stderr
        assert server.asked == []
        assert llorch("--url", server.url, "ps", state_dir=tmp_path, env=ENV).returncode == 0
        assert llorch("ps", state_dir=tmp_path, env={**ENV, "LLORCH_URL": server.url}).returncode == 0
        record(tmp_path, server.bind, os.getpid(), start_ticks(os.getpid()))
        assert llorch("ps", state_dir=tmp_path, env=ENV).returncode == 0
        assert {bearer for _, bearer, _ in server.asked} == {f"Bearer {TOKEN}"}


def test_an_https_url_names_a_tunnel(tmp_path):
    for say in (["--url", "https://llm.example"], []):
        done = llorch(*say, "ls", state_dir=tmp_path, env={**ENV, "LLORCH_URL": "https://llm.example"})
        assert done.returncode == 2 and b"ssh -L 18080:127.0.0.1:8080 llm.example" in done.stderr, done.stderr
        with socket.create_server(("127.0.0.1", 0)) as other:
            done = llorch("--json", *say, "--set", f"pool-managerd.bind=127.0.0.1:{other.getsockname()[1]}", "doctor", state_dir=tmp_path,
                          env={**ENV, "LLORCH_URL": "https://llm.example"})
        checks = {c["check"]: c for c in json.loads(done.stdout)["checks"]}
        assert done.returncode == 2 and "ports" not in checks, done
        assert "ssh -L" in checks["stack"]["finding"] and checks["stack"]["next"] == "say where orchestratord answers with --url", checks["stack"]


def test_without_a_record_the_configured_address_is_asked(tmp_path):
    with SaidServer(answers=ANSWERS) as server:
        for host in ("127.0.0.1", "localhost", "0.0.0.0"):
            done = llorch("--set", f"orchestratord.bind={host}:{server.server.server_port}", "ps", state_dir=tmp_path, env=ENV)
            assert done.returncode == 0, done.stderr
        assert len(server.asked) == 3


def test_who_binds_every_address_is_called_at_loopback(tmp_path):
    """A request that names 0.0.0.0 is refused, as one of a page whose name was pointed at this machine."""
    stack = Stack(state_dir=tmp_path, token=TOKEN)
    stack.bind = "0.0.0.0:0"
    try:
        stack.start_orchestrator()
        bind = stack.bind
        stack.bind = bind.replace("0.0.0.0", "127.0.0.1")
        assert stack.request("GET", "/v2/tasks", headers={"Host": bind, "Authorization": f"Bearer {TOKEN}"}).code == "FORBIDDEN"
        for command in (["ps"], ["backup", str(tmp_path / "jobs.backup")]):
            done = llorch(*command, state_dir=tmp_path, env=ENV)
            assert done.returncode == 0, (command, done.stderr)
        # The pool of the same configuration, which names no orchestratord.
        stack.pool = stack._spawn("pool-managerd", "127.0.0.1:0", ["--cpu", "--set", f"orchestratord.bind={bind}"])
        wait_for("the pool to register", stack.pools)
    finally:
        stack.stop()


def test_the_pool_of_up_finds_an_orchestratord_that_binds_every_address(tmp_path):
    binds = ["--set", "orchestratord.bind=0.0.0.0:0", "--set", "pool-managerd.bind=127.0.0.1:0"]
    try:
        done = llorch(*binds, "up", "--cpu", "--detach", "--model", str(MODEL), state_dir=tmp_path, env=ENV)
        assert done.returncode == 0, done.stderr
        assert re.search(rb"^orchestratord +http://127\.0\.0\.1:\d+$", done.stdout, re.M), done.stdout
        done = llorch("run", MODEL.stem, "Once upon a time", "--max-tokens", "4", state_dir=tmp_path, env=ENV)
        assert done.returncode == 0 and done.stdout, done.stderr
    finally:
        llorch("down", state_dir=tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_strangers_port_gets_no_token(tmp_path):
    for host in ["127.0.0.1", *own_addresses()]:
        with subprocess.Popen([sys.executable, "-c", STRANGER, host], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              user=54321) as stranger:
            port = stranger.stdout.readline().strip()
            for bind in (host, f"[::ffff:{host}]"):
                done = llorch("--set", f"orchestratord.bind={bind}:{port}", "ps", state_dir=tmp_path, env=ENV)
                assert done.returncode == 4 and b"54321" in done.stderr and b"--url" in done.stderr, (bind, done.stderr)
            assert stranger.communicate("\n")[0] == "nobody\n"


def test_a_name_is_no_bind_and_gets_no_token(tmp_path):
    done = llorch("--set", "orchestratord.bind=orchestratord.invalid:8080", "ps", state_dir=tmp_path, env=ENV)
    assert done.returncode == 4 and b"orchestratord.invalid" in done.stderr and b"--url" in done.stderr, done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_the_owner_of_the_state_directory_is_no_stranger(tmp_path):
    os.chown(tmp_path, 54321, -1)
    script = f"""
import sys, threading
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
from said_server import SaidServer
with SaidServer(answers={ANSWERS!r}) as server:
    print(server.bind, flush=True)
    sys.stdin.readline()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=54321,
                          env={**clean_env(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}) as server:
        bind = server.stdout.readline().strip()
        done = llorch("--set", f"orchestratord.bind={bind}", "ps", state_dir=tmp_path, env=ENV)
        server.communicate("\n")
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_the_state_directory_of_a_stranger_names_nobody():
    with SaidServer(answers=ANSWERS) as server, tempfile.TemporaryDirectory(prefix="llorch-e2e-state-") as directory:
        state = pathlib.Path(directory)
        record(state, server.bind, os.getpid(), start_ticks(os.getpid()))
        for place in (state, state / "run"):
            place.chmod(0o755)
        os.chown(state, 54321, -1)

        def ps(**variables):
            done = subprocess.run(["setpriv", "--reuid=54322", "--regid=54322", "--clear-groups", BIN / "llorch", "--state-dir", state, "ps"],
                                  env={**clean_env("/nonexistent"), "HOME": "/nonexistent", **variables}, capture_output=True,
                                  timeout=HANG_S, check=False)
            if b"Permission denied" in done.stderr and b"setpriv" in done.stderr:
                pytest.skip("another user cannot reach the programs of this build")
            return done

        done = ps(**ENV)
        assert done.returncode == 4 and b"54321" in done.stderr and b"--url" in done.stderr, done.stderr
        assert server.asked == []
        os.chown(state, 54322, -1)
        assert ps(**ENV).returncode == 0
        os.chown(state, 0, -1)
        assert ps(**ENV).returncode == 0


def test_a_backup_asks_nobody_whose_record_is_stale(tmp_path):
    with Stack(state_dir=tmp_path, token=TOKEN) as stack, SaidServer() as server:
        record(tmp_path, server.bind, stack.orchestrator.pid, 1)
        done = llorch("backup", str(tmp_path / "jobs.backup"), state_dir=tmp_path, env=ENV)
        assert b"UNREACHABLE" in done.stderr and server.asked == [], (done.stderr, server.asked)
        record(tmp_path, stack.bind, stack.orchestrator.pid, start_ticks(stack.orchestrator.pid))
        done = llorch("backup", str(tmp_path / "jobs.backup"), state_dir=tmp_path, env=ENV)
        assert done.returncode == 0, done.stderr


def test_the_token_of_the_environment_goes_before_that_of_the_configuration(tmp_path):
    token, config = tmp_path / "token", tmp_path / "config.yaml"
    token.write_text("o" * 40)
    token.chmod(0o600)
    config.write_text(f"auth: {{token_file: {token}}}\n")
    with SaidServer(answers=ANSWERS) as server:
        for env, sent in (({}, "o" * 40), (ENV, TOKEN)):
            done = llorch("--url", server.url, "ps", state_dir=tmp_path, env={**env, "LLORCH_CONFIG": str(config)})
            assert done.returncode == 0, done.stderr
            assert server.asked[-1][1] == f"Bearer {sent}"


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"<!DOCTYPE HTML>\n<p>a page"
        self.send_response(int(self.path.split("/")[1]))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_another_program_is_told_from_orchestratord(tmp_path):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever).start()
        for status in (200, 404):
            done = llorch("--url", f"http://127.0.0.1:{server.server_port}/{status}", "ps", state_dir=tmp_path)
            assert done.returncode == 3 and b"UNREACHABLE" in done.stderr and b"is not orchestratord" in done.stderr, done.stderr
            done = llorch("--url", f"http://127.0.0.1:{server.server_port}/{status}", "doctor", state_dir=tmp_path)
            assert b"is not orchestratord" in done.stdout and b"llorch up (" not in done.stdout, done.stdout
        done = llorch("--url", f"http://127.0.0.1:{server.server_port}/413", "ps", state_dir=tmp_path)
        assert done.returncode == 1 and b"HTTP status 413" in done.stderr and b"a proxy" in done.stderr, done.stderr
        server.shutdown()
