"""llorch backup and restore."""

import json
import pathlib
import resource
import signal
import tempfile
import threading
import time

from stack import HANG_S, Stack, llorch, wait_for


def test_waiting_jobs_move_with_a_backup():
    """SYS-6.1.3: what waits goes on from a backup, with its prompt; a running stack is not overwritten."""
    with Stack() as stack, tempfile.TemporaryDirectory() as directory:
        file = f"{directory}/jobs.backup"
        stack.submit_held(max_tokens=300)
        jobs = [stack.submit(prompt=f"job {n}", max_tokens=8, seed=n)["job_id"] for n in range(3)]
        refused = llorch("restore", file, state_dir=stack.dir)
        assert refused.returncode == 1 and b"ALREADY_RUNNING" in refused.stderr, refused.stderr
        stack.orchestrator.terminate()
        stack.orchestrator.wait(HANG_S)
        stack.gate.open()  # the stack that is restored knows the same pool
        written = llorch("--json", "backup", file, state_dir=stack.dir)
        assert written.returncode == 0, written.stderr
        assert json.loads(written.stdout)["live_jobs"] == 4
        assert llorch("restore", file, state_dir=stack.dir).returncode == 1, "a store was overwritten"

        with tempfile.TemporaryDirectory() as elsewhere:
            restored = llorch("restore", file, state_dir=elsewhere)
            assert restored.returncode == 0, restored.stderr
            with Stack(state_dir=elsewhere) as other:
                for job in jobs:
                    assert other.wait_terminal(job)["status"] == "completed"
        stack.start_orchestrator()
        for job in jobs:
            assert stack.wait_terminal(job)["status"] == "completed"


def test_what_cannot_be_done_is_refused(tmp_path):
    """Names that no file can have, and keys of another store."""
    with Stack() as stack:
        stack.stop_daemons()
        file = tmp_path / "jobs.backup"
        assert llorch("backup", str(file), state_dir=stack.dir).returncode == 0
        (tmp_path / "loop").symlink_to("loop")
        for name in ("x" * 300, "loop/x"):
            done = llorch("backup", str(tmp_path / name), state_dir=stack.dir)
            assert done.returncode == 1 and b"IO_ERROR" in done.stderr, done
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir(mode=0o700)
        (elsewhere / "payload.keys").write_bytes(b"k" * 64)
        done = llorch("restore", str(file), state_dir=elsewhere)
        assert done.returncode == 1 and b"CONFLICT" in done.stderr and b"payload.keys" in done.stderr, done.stderr
        assert (elsewhere / "payload.keys").read_bytes() == b"k" * 64
        (elsewhere / "payload.keys").write_bytes(bytes(64))
        assert llorch("restore", str(file), state_dir=elsewhere).returncode == 0


class Load:
    """Submits short jobs until it is told to stop, more than the held workers end; none may be refused."""

    def __init__(self, stack):
        self.stack = stack
        self.jobs = []
        self.over = False
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over:
            number = len(self.jobs)
            self.jobs.append(self.stack.submit(prompt=f"job {number} ", max_tokens=2, seed=number)["job_id"])
            if number % 4 == 0:
                self.stack.gate.let_pass(1)
            time.sleep(0.02)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.thread.join()


def left_beside(file):
    return sorted(path.name for path in pathlib.Path(file).parent.iterdir())


def small_files():
    """For a process whose disk has no room for a backup."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))


def test_a_backup_while_the_stack_serves():
    """SYS-6.1.3: jobs come and end while it is made; all that live in it run from it, and the stack goes on."""
    with Stack({"orchestratord.queue.capacity": "5000", "orchestratord.worker_slots": "4"}) as stack, tempfile.TemporaryDirectory() as directory:
        file = f"{directory}/jobs.backup"
        long_job = stack.submit_held(max_tokens=300)
        with Load(stack) as load:
            wait_for("some jobs", lambda: len(load.jobs) >= 30)
            full = llorch("backup", file, state_dir=stack.dir, preexec_fn=small_files)
            assert full.returncode == 1 and b"IO_ERROR" in full.stderr, full.stderr
            assert left_beside(file) == []
            written = llorch("--json", "backup", file, state_dir=stack.dir)
            assert written.returncode == 0, written.stderr
            again = llorch("backup", file, state_dir=stack.dir)
            assert again.returncode == 1 and b"CONFLICT" in again.stderr, again.stderr
        assert left_beside(file) == ["jobs.backup"]
        assert not (stack.dir / "backup.request").exists()
        live = json.loads(written.stdout)["live_jobs"]
        assert live > 10
        assert any(stack.job(job)["status"] == "completed" for job in load.jobs)
        stack.gate.open()
        for job in [long_job, *load.jobs]:
            assert stack.wait_terminal(job)["status"] == "completed"
        stack.stop_daemons()

        with tempfile.TemporaryDirectory() as elsewhere:
            restored = llorch("--json", "restore", file, state_dir=elsewhere)
            assert restored.returncode == 0, restored.stderr
            assert json.loads(restored.stdout)["live_jobs"] == live
            with Stack({"orchestratord.queue.capacity": "5000"}, state_dir=elsewhere) as other:
                jobs = [job["job_id"] for job in other.request("GET", "/v2/tasks?limit=1000").json["tasks"]]
                assert long_job in jobs
                for job in jobs:
                    assert other.wait_terminal(job)["status"] == "completed"
