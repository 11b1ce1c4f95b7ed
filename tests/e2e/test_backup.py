"""llorch backup and restore."""

import json
import tempfile

from stack import Stack, llorch


def test_waiting_jobs_move_with_a_backup():
    """SYS-6.1.3: what waits goes on from a backup, with its prompt; a running stack is neither read nor overwritten."""
    with Stack(slow=True) as stack, tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/jobs.backup"
        stack.submit(max_tokens=300)
        jobs = [stack.submit(prompt=f"job {n}", max_tokens=8, seed=n)["job_id"] for n in range(3)]
        for command in ("backup", "restore"):
            refused = llorch(command, file, state_dir=stack.dir)
            assert refused.returncode == 1 and b"ALREADY_RUNNING" in refused.stderr, refused.stderr
        stack.orchestrator.terminate()
        stack.orchestrator.wait(20)
        written = llorch("--json", "backup", file, state_dir=stack.dir)
        assert written.returncode == 0, written.stderr
        assert json.loads(written.stdout)["live_jobs"] == 4
        assert llorch("restore", file, state_dir=stack.dir).returncode == 1, "a store was overwritten"

        with tempfile.TemporaryDirectory() as elsewhere:
            restored = llorch("restore", file, state_dir=elsewhere)
            assert restored.returncode == 0, restored.stderr
            with Stack(slow=True, state_dir=elsewhere) as other:
                for job in jobs:
                    assert other.wait_terminal(job)["status"] == "completed"
        stack.start_orchestrator()
        for job in jobs:
            assert stack.wait_terminal(job)["status"] == "completed"
