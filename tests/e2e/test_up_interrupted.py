"""llorch up that is stopped before the stack serves."""

import os
import shutil
import signal
import subprocess

import pytest

from stack import BIN, HANG_S, clean_env, process_runs, wait_for

# In orchestratord's place: pairs for ever.
PAIRING = """#!/bin/sh
echo $$ > "$PAIRS.part"
mv "$PAIRS.part" "$PAIRS"
exec sleep 100000
"""


class Pairing:
    def __init__(self, directory, *flags):
        programs = directory / "bin"
        programs.mkdir()
        self.llorch = shutil.copy(BIN / "llorch", programs / "llorch")
        (programs / "orchestratord").write_text(PAIRING)
        os.chmod(programs / "orchestratord", 0o755)
        self.state = directory / "state"
        mark = directory / "pairs"
        self.env = clean_env(self.state, {"PAIRS": str(mark)})
        self.up = subprocess.Popen([self.llorch, "up", "--cpu", *flags], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_for("it to pair", mark.exists)
        self.pid = int(mark.read_text())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.up.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.up.kill()
        self.up.communicate()


def test_ctrl_c_ends_it_while_it_pairs(tmp_path):
    with Pairing(tmp_path) as pairing:
        pairing.up.send_signal(signal.SIGINT)
        wait_for("up to end", lambda: pairing.up.poll() is not None, timeout_s=HANG_S / 6)
        assert pairing.up.returncode == 130
        assert b"interrupted" in pairing.up.stderr.read()
        assert not process_runs(pairing.pid)
        assert not (pairing.state / "run/supervisor.json").exists()


@pytest.mark.parametrize("flags", [(), ("--detach",)], ids=["foreground", "detached"])
def test_down_stops_a_stack_that_is_being_started(tmp_path, flags):
    with Pairing(tmp_path, *flags) as pairing:
        again = subprocess.run([pairing.llorch, "up", "--cpu"], env=pairing.env, capture_output=True, timeout=HANG_S, check=False)
        assert again.returncode == 1 and b"ALREADY_RUNNING" in again.stderr, again.stderr
        down = subprocess.run([pairing.llorch, "down"], env=pairing.env, capture_output=True, timeout=HANG_S, check=False)
        assert down.returncode == 0 and b"stopped supervisor" in down.stdout, (down.stdout, down.stderr)
        wait_for("up to end", lambda: pairing.up.poll() is not None)
        assert pairing.up.returncode != 0
        assert not process_runs(pairing.pid)
        assert not (pairing.state / "run/supervisor.json").exists()


@pytest.mark.parametrize("flags", [(), ("--detach",)], ids=["foreground", "detached"])
@pytest.mark.parametrize("daemon", ["orchestratord", "pool-managerd"])
def test_a_daemon_that_cannot_record_itself_is_not_waited_for(tmp_path, daemon, flags):
    (tmp_path / f"run/{daemon}.json/in-the-way").mkdir(parents=True)
    done = subprocess.run([BIN / "llorch", "up", "--cpu", *flags], env=clean_env(tmp_path), capture_output=True, text=True, timeout=HANG_S,
                          check=False)
    assert done.returncode == 1, done
    assert f"{daemon} did not start: it cannot record where it listens" in done.stderr
    assert [record for record in (tmp_path / "run").glob("*.json") if record.is_file()] == []


def test_a_start_that_fails_leaves_no_record(tmp_path):
    done = subprocess.run([BIN / "llorch", "up", "--cpu", "--model", "nothing"], env=clean_env(tmp_path), capture_output=True, timeout=HANG_S,
                          check=False)
    assert done.returncode == 1 and list((tmp_path / "run").glob("*.json")) == [], done.stderr
