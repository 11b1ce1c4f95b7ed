"""Programs of engines that llama-orch brings to a machine itself: what is planned, what policy refuses, and that what was installed
serves. The program is fake_engine.py, packed as others pack theirs; installers, index, archive and git are real. Of a
container only the runtime's command line is held: a script in its place runs the engine without one (test_engine_containers.py has one)."""

import base64
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

from adapter import text
from engine_stack import EngineStack
from fake_engine import tokens_of
from model_server import ModelServer
from stack import BIN, HANG_S, clean_env, llorch, process_runs, wait_for

FAKE = pathlib.Path(__file__).with_name("fake_engine.py")
PROMPT = "Once upon a time"
MAIN = """
import sys, signal
from {package}fake_engine import FakeEngine
port = int(sys.argv[sys.argv.index("--port") + 1])
FakeEngine("llamacpp", port=port, version="packed")
signal.sigwait([signal.SIGTERM, signal.SIGINT])
"""


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def wheel(name="tale_engine", version="1.0", requires=()):
    """Bytes of a wheel whose module serves."""
    info = f"{name}-{version}.dist-info"
    members = {
        f"{name}/__init__.py": "", f"{name}/fake_engine.py": FAKE.read_text(),
        f"{name}/__main__.py": MAIN.format(package=f"{name}."),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
                            + "".join(f"Requires-Dist: {each}\n" for each in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(body.encode()).digest()).decode().rstrip('=')},{len(body)}\n"
        for path, body in members.items())
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, body in members.items():
            archive.writestr(path, body)
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return out.getvalue()


def archive():
    """Bytes of a .tar.gz with a program in bin/."""
    out = io.BytesIO()
    files = {"bin/fake_engine.py": (FAKE.read_text(), 0o644),
             "bin/serve": (f"#!{sys.executable}\n" + MAIN.format(package=""), 0o755)}
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, (body, mode) in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(body.encode()), mode
            tar.addfile(member, io.BytesIO(body.encode()))
    return out.getvalue()


def entry(command, **provisioning):
    return {"name": "tale", "engine": "llamacpp", "endpoint": "http://127.0.0.1:{port}", "command": command, "device": "cpu",
            "memory_bytes": 1 << 20, "slots": 2, "provisioning": {"version": "1.0", **provisioning}}


def binary(url, data):
    return entry(["{engine}/bin/serve", "--port", "{port}"], mode="binary", binary={"url": url, "checksum": sha256(data)})


class Node:
    """A machine with an engine in its configuration, and the command line on it."""

    def __init__(self, directory, engine, policy=None, pull=None, path=None):
        self.directory = directory
        self.config = directory / "config.yaml"
        self.config.write_text(json.dumps({
            "pool-managerd": {"engines": [engine],
                              "provisioning": {"cache_dir": str(directory / "engines"), **(policy or {})}},
            "models": {"pull": {"allowed_hosts": ["127.0.0.1"], "attempts_max": 2, **(pull or {})}}}))
        self.env = {"LLORCH_CONFIG": str(self.config)}
        if path:
            self.env["PATH"] = f"{path}:{os.environ['PATH']}"

    def llorch(self, *args, code=0):
        done = llorch(*args, state_dir=self.directory, env=self.env)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done.stdout.decode() + done.stderr.decode()

    def installed(self):
        return sorted(p.parent.name for p in (self.directory / "engines").glob("*/engine.json"))

    def stack(self):
        """All daemons with this configuration."""
        stack = EngineStack([], aliases=["tale"], env=self.env)
        stack.config.write_text(self.config.read_text())
        return stack


def serves(stack):
    events = stack.read_to_end(stack.submit(model="tale", max_tokens=12, seed=7)["job_id"])
    assert events[-1].name == "end", events[-1].data
    assert text(events) == "".join(tokens_of(PROMPT, 7, 12))
    assert stack.job(events[-1].data["job_id"])["receipt"]["engine_build"] == "llamacpp/packed"


def index(server, name, data, version="1.0"):
    """Puts a wheel into a package index. Its checksum."""
    file = f"{name}-{version}-py3-none-any.whl"
    server.add(f"/files/{file}", data)
    page = {"files": [{"filename": file, "url": f"/files/{file}", "hashes": {"sha256": sha256(data)[7:]}, "size": len(data)}]}
    server.documents[f"/simple/{name}/"] = (200, {"Content-Type": "application/json"}, json.dumps(page).encode())
    return sha256(data)


def package(checksum, dependencies=()):
    return entry(["{engine}/venv/bin/python", "-m", "tale_engine", "--port", "{port}"], mode="package",
                 package={"name": "tale_engine", "version": "1.0", "checksum": checksum, "python": sys.executable,
                          "dependencies": list(dependencies)})


def test_a_package_is_planned_installed_served_and_removed(tmp_path):
    """ORCH-3200 ORCH-3202#provisions ORCH-3207#plan ORCH-3207#logs ORCH-3207#ready OC-CONFIG-6024: one plan however often it is asked
    for, a log of what was done; it is ready once it answers, two jobs ran, one was cancelled and its metrics were read; and its files are
    not removed under it."""
    with ModelServer() as server:
        helper = wheel("tale_helper")
        checksum = index(server, "tale_engine", wheel(requires=["tale_helper"]))
        node = Node(tmp_path, package(checksum, [f"tale_helper==1.0 {index(server, 'tale_helper', helper)}"]),
                    policy={"allow_package_installs": True}, pull={"pypi_url": f"{server.url}/simple"})
        plan = node.llorch("engine", "plan", "tale")
        assert plan == node.llorch("engine", "plan", "tale") and "--no-index" in plan and checksum in plan
        assert node.installed() == [] and "not installed" in node.llorch("engine", "list")
        with node.stack() as stack:
            refused = stack.request("POST", "/v2/tasks", {"model": "tale", "prompt": "x", "max_tokens": 1})
            assert (refused.status, refused.code) == (503, "POOL_UNREADY"), refused.body
            assert b"llorch engine install tale" in refused.body
            told = node.llorch("engine", "install", "tale")
            assert told.index("The plan:") < told.index("is installed"), told
            serves(stack)
            assert "a worker runs this engine" in node.llorch("engine", "remove", "tale", code=1)
            assert len(node.installed()) == 1
            wait_for("its worker to be idle", lambda: stack.adapter()["status"] == "ready")
            log = (pathlib.Path(node.directory) / "logs/engine-tale.log").read_text()
            assert "== run: " in log and "Successfully installed" in log
        node.llorch("engine", "install", "tale")  # it is there: nothing happens
        other = Node(tmp_path, package(sha256(b"another")))
        assert {each["state"] for each in json.loads(other.llorch("--json", "engine", "list"))} == {"not installed", "left over"}
        assert "was not installed" in other.llorch("engine", "remove", "tale")
        node = Node(tmp_path, package(checksum, [f"tale_helper==1.0 {sha256(helper)}"]))
        assert "is removed" in node.llorch("engine", "remove", "tale")
        assert node.installed() == [] and "was not installed" in node.llorch("engine", "remove", "tale")


def test_a_download_is_installed_at_the_start_of_its_pool(tmp_path):
    """ORCH-3200 OC-CONFIG-6025: without anybody asking for it, where the configuration says so."""
    data = archive()
    with ModelServer() as server:
        server.add("/engine.tar.gz", data)
        node = Node(tmp_path, binary(f"{server.url}/engine.tar.gz", data),
                    policy={"allow_binary_downloads": True, "at_start": True})
        with node.stack() as stack:
            wait_for("the engine to be installed", node.installed)
            serves(stack)
        assert json.loads(node.llorch("--json", "engine", "list"))[0]["state"] == "installed"


def test_what_policy_forbids_is_refused_before_anybody_is_asked(tmp_path):
    """ORCH-3206 ORCH-3202#guidance: off by default, each by its own switch, and models.pull.policy over all of them."""
    data = archive()
    with ModelServer() as server:
        server.add("/engine.tar.gz", data)
        node = Node(tmp_path, binary(f"{server.url}/engine.tar.gz", data))
        assert "allow_binary_downloads: true" in node.llorch("engine", "plan", "tale", code=1)
        assert "allow_binary_downloads: true" in node.llorch("engine", "install", "tale", code=4)
        node = Node(tmp_path, binary(f"{server.url}/engine.tar.gz", data), policy={"allow_binary_downloads": True},
                    pull={"policy": "off"})
        assert "FORBIDDEN" in node.llorch("engine", "install", "tale", code=4)
        node = Node(tmp_path, package(sha256(data)), pull={"pypi_url": f"{server.url}/simple"})
        assert "allow_package_installs: true" in node.llorch("engine", "install", "tale", code=4)
        assert server.requests == [] and node.installed() == []


def test_other_bytes_than_those_that_were_pinned_are_no_engine(tmp_path):
    """OC-CONFIG-6025: and they leave nothing behind."""
    data = archive()
    with ModelServer() as server:
        server.add("/engine.tar.gz", data + b"x")
        node = Node(tmp_path, binary(f"{server.url}/engine.tar.gz", data), policy={"allow_binary_downloads": True})
        assert "UNTRUSTED_ARTIFACT" in node.llorch("engine", "install", "tale", code=1)
        index(server, "tale_engine", wheel())
        node = Node(tmp_path, package(sha256(b"another")), policy={"allow_package_installs": True},
                    pull={"pypi_url": f"{server.url}/simple"})
        assert "MODEL_NOT_FOUND" in node.llorch("engine", "install", "tale", code=1)
        assert node.installed() == []


RUNTIME = """#!{python}
import os, subprocess, sys
args = sys.argv[1:]
with open("{log}", "a") as log:
    log.write(" ".join(args) + "\\n")
if args[0] == "run":
    image = next(i for i, a in enumerate(args) if "@sha256:" in a)
    os.execv("{python}", ["{python}", "{serve}", *args[image + 1:]])
"""


def container(image, command):
    out = entry(command, mode="container", container={"image": image, "tag": "1.0", "digest": "sha256:" + "a" * 64})
    return {**out, "environment": {"TALE": "told"}}


def test_a_container_is_pulled_started_and_removed_by_its_runtime(tmp_path):
    """OC-CONFIG-6023: the runtime is asked to pull one image by its digest, to run it on this machine's loopback, and to remove what
    a killed worker leaves."""
    tools = tmp_path / "tools"
    tools.mkdir()
    log, serve = tools / "log", tools / "serve.py"
    serve.write_text(MAIN.format(package=""))
    shutil.copy(FAKE, tools / "fake_engine.py")
    (tools / "podman").write_text(RUNTIME.format(python=sys.executable, log=log, serve=serve))
    (tools / "podman").chmod(0o755)
    node = Node(tmp_path, container("127.0.0.1/tale", ["--port", "{port}"]), policy={"allow_container_pulls": True}, path=tools)
    node.llorch("engine", "install", "tale")
    image = "127.0.0.1/tale@sha256:" + "a" * 64
    assert log.read_text() == f"pull {image}\n"
    with node.stack() as stack:
        serves(stack)
        worker = stack.adapter()
        os.kill(worker["pid"], 9)
        wait_for("the pool to notice", lambda: not process_runs(worker["pid"]))
        serves(stack)
        told = [line for name in ("orchestratord", "pool-managerd") for line in stack.log(name).splitlines() if "worker" in line]
    lines = log.read_text().splitlines()[1:]
    runs = [line for line in lines if line.startswith("run ")]
    assert len(runs) == 2, "\n".join([*lines, *told])
    assert all("--pull never" in run and "--env TALE" in run for run in runs), lines
    assert "told" not in log.read_text()
    names = [run.split("--name ")[1].split()[0] for run in runs]
    assert len(set(names)) == 2 and all(name.startswith("llorch-tale-") for name in names)
    assert lines.index(f"rm --force {names[0]}") < lines.index(runs[1]) < lines.index(f"rm --force {names[1]}"), lines


def test_an_installer_that_is_killed_has_installed_nothing(tmp_path):
    """Also one that ends in peace before it was done."""
    programs = tmp_path / "bin"
    programs.mkdir()
    shutil.copy(BIN / "llorch", programs / "llorch")
    installer = programs / "pool-managerd"
    engines = json.dumps([{"name": "tale", "engine": "llamacpp", "endpoint": "http://127.0.0.1:1", "slots": 1}])
    for end, said in (("kill -9 $$", b"signal 9"), ("exit 3", b"exit 3"), ("exit 0", b"before it was done")):
        installer.write_text('#!/bin/sh\necho \'{"event":"step","kind":"fetch","detail":"x"}\'\n' + end + "\n")
        installer.chmod(0o755)
        for verb in ("install", "remove"):
            done = subprocess.run([programs / "llorch", "--set", f"pool-managerd.engines={engines}", "engine", verb, "tale"],
                                  env=clean_env(tmp_path / "state"), capture_output=True, timeout=HANG_S, check=False)
            assert done.returncode == 1 and said in done.stderr, (verb, end, done.returncode, done.stdout, done.stderr)
