"""A daemon that dies by a signal leaves no image of its memory: prompts, outputs and keys are in it."""

import os
import pathlib
import pwd
import resource
import signal
import subprocess
import sys

import pytest
from stack import BIN, HANG_S, MODEL, Gate, Stack, llorch, process_runs, wait_for
from workload import SETTINGS

CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


def cores_allowed():
    """As a shell with `ulimit -c unlimited` starts a daemon."""
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def core_files(directory):
    return [path for path in pathlib.Path(directory).rglob("*") if path.is_file() and "core" in path.name]


@pytest.fixture
def crashes_are_kept(tmp_path):
    """Skips where even a willing process leaves no core file in its directory, since then nothing could be shown."""
    directory = tmp_path / "control"
    directory.mkdir()
    try:
        subprocess.run([sys.executable, "-c", CRASH], cwd=directory, preexec_fn=cores_allowed, check=False)
    except subprocess.SubprocessError:
        pytest.skip("this user may not raise RLIMIT_CORE")
    if not core_files(directory):
        pytest.skip("the kernel writes core files elsewhere: " + pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip())


@pytest.fixture
def stack(tmp_path):
    for name in ("cwd", "state"):
        (tmp_path / name).mkdir(mode=0o700)
    spawn = {"cwd": tmp_path / "cwd", "preexec_fn": cores_allowed}
    with Stack(settings=SETTINGS, state_dir=tmp_path / "state", spawn=spawn) as one:
        one.wait_terminal(one.submit(max_tokens=2)["job_id"])
        yield one


def test_a_crashed_daemon_writes_no_core_file(crashes_are_kept, tmp_path, stack):
    """SYS-9.2.3: worker, pool manager and orchestrator, each crashed in the middle of a job."""
    for name in ("worker", "pool", "orchestrator"):
        stack.submit_held(max_tokens=400, on_disconnect="resume")
        worker = stack.ready_worker()["pid"]
        pid = {"worker": worker, "pool": stack.pool.pid, "orchestrator": stack.orchestrator.pid}[name]
        limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
        assert [line.split()[4:6] for line in limits.splitlines() if line.startswith("Max core file size")] == [["0", "0"]], name
        os.kill(pid, signal.SIGSEGV)
        if name == "worker":
            wait_for("the worker to die", lambda p=pid: not process_runs(p))
        else:
            process = getattr(stack, name)
            assert process.wait(HANG_S) == -signal.SIGSEGV, name
            stack.start_pool() if name == "pool" else stack.start_orchestrator()
    assert core_files(tmp_path / "cwd") == [] and core_files(tmp_path / "state") == []


def test_no_other_process_of_the_user_may_read_a_daemon(tmp_path):
    """Daemons are not dumpable. The kernel then gives the files under /proc/PID to root, whoever runs the daemon; it does
    not for a process that is dumpable (the control)."""
    user = "nobody" if os.getuid() == 0 else None
    uid = pwd.getpwnam(user).pw_uid if user else os.getuid()
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    for directory in (tmp_path, *list(tmp_path.parents)[:3]) if user else ():
        os.chmod(directory, 0o755)
    os.chown(state, uid, -1)
    who = {"user": uid} if user else {}
    if subprocess.run([str(BIN / "llorch"), "version"], capture_output=True, check=False, **who).returncode != 0:
        pytest.skip("the binaries are not readable for an ordinary user")
    sleeper = subprocess.Popen(["sleep", "60"], **who)
    try:
        assert os.stat(f"/proc/{sleeper.pid}/maps").st_uid == uid
    finally:
        sleeper.kill()
        sleeper.wait()
    with Stack(settings=SETTINGS, state_dir=state, spawn=who) as stack:
        stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])
        for pid in (stack.orchestrator.pid, stack.pool.pid, stack.ready_worker()["pid"]):
            assert f"Uid:\t{uid}\t" in pathlib.Path(f"/proc/{pid}/status").read_text()
            assert os.stat(f"/proc/{pid}/maps").st_uid == 0


def test_the_front_door_writes_no_core_file(crashes_are_kept, tmp_path):
    """`llorch run` holds the prompt, `llorch up` starts who holds more."""
    gate = Gate()
    gate.hold()
    gate.let_pass(8)
    process = subprocess.Popen([str(BIN / "llorch"), "--state-dir", str(tmp_path / "state"), "--set", "orchestratord.bind=127.0.0.1:0",
                                "--set", "pool-managerd.bind=127.0.0.1:0", "up", "--cpu", "--model", str(MODEL)],
                               cwd=tmp_path, preexec_fn=cores_allowed, stdout=subprocess.PIPE, env={**os.environ, **gate.env})
    assert b"orchestratord" in process.stdout.readline()
    run = subprocess.Popen([str(BIN / "llorch"), "--state-dir", str(tmp_path / "state"), "run", MODEL.stem, "Once", "--max-tokens", "500",
                            "--seed", "7"],
                           cwd=tmp_path, preexec_fn=cores_allowed, stdout=subprocess.PIPE)
    assert run.stdout.read(1)
    for one in (run, process):
        one.send_signal(signal.SIGSEGV)
        assert one.wait(HANG_S) == -signal.SIGSEGV
    gate.remove()
    llorch("down", state_dir=tmp_path / "state")
    assert {path.parent for path in core_files(tmp_path)} == {tmp_path / "control"}
