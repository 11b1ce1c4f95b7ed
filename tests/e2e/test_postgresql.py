"""The daemons on PostgreSQL: nothing accepted is lost when orchestratord or the server is killed."""

import contextlib
import http.client
import signal
import subprocess
import tempfile

from postgres import PostgresServer
from stack import BIN, HANG_S, ResumingClient, Stack, request, wait_for

NEEDLE = "zanzibar marmalade"


def test_jobs_in_postgresql_survive_kill_9_of_both():
    """SYS-6.1.2 SYS-6.1.3: queued and running jobs go on after SIGKILL of orchestratord; a stream is the same as undisturbed."""
    with PostgresServer() as server, tempfile.TemporaryDirectory() as directory:
        settings = {"orchestratord.persistence.store": "postgresql",
                    "orchestratord.persistence.postgresql.connection_file": str(server.connection_file(directory))}
        with Stack(settings) as stack:
            undisturbed = ResumingClient(stack, stack.submit(prompt=NEEDLE, max_tokens=40)["job_id"]).run()
            jobs = [stack.submit_held(prompt=NEEDLE, max_tokens=40, on_disconnect="resume")]
            jobs += [stack.submit(prompt=NEEDLE, max_tokens=40, on_disconnect="resume")["job_id"] for _ in range(3)]
            stack.orchestrator.kill()
            stack.orchestrator.wait()
            assert server.sql("SELECT count(*) FROM llorch.jobs WHERE completed_at IS NULL") == "4"
            stack.gate.open()
            stack.start_orchestrator()
            for job_id in jobs:
                client = ResumingClient(stack, job_id).run()
                assert client.terminal().name == "end", client.terminal()
                assert client.tokens() == undisturbed.tokens()

            # The server dies under the running stack: refused meanwhile, and it recovers without help.
            waiting = stack.submit_held(prompt=NEEDLE, max_tokens=200)
            server.process.kill()
            server.process.wait()
            # Its last backend may still finish a commit; what is asked after that is refused at once.
            wait_for("the store to notice", lambda: request(stack.url, "GET", "/v2/tasks/no-such-job").status == 503)
            refused = request(stack.url, "POST", "/v2/tasks", {"model": "demo", "prompt": "x", "max_tokens": 2, "seed": 1})
            assert (refused.status, refused.code) == (503, "STORE_UNAVAILABLE")
            stack.gate.open()
            wait_for("the server to start again", lambda: restarted(server))
            wait_for("admissions", lambda: request(stack.url, "POST", "/v2/tasks",
                                                   {"model": "demo", "prompt": "x", "max_tokens": 2, "seed": 1}).status == 202)
            assert stack.wait_terminal(waiting)["status"] == "completed"

            # A second orchestratord on the same database has no chance, and says so.
            with tempfile.TemporaryDirectory() as other:
                second = Stack(settings, state_dir=other)
                process = second._spawn("orchestratord", "127.0.0.1:0")
                assert process.wait(HANG_S) == 1  # systemd starts it again: it waits as a standby
                assert "ALREADY_RUNNING" in second.log("orchestratord")
                assert str(stack.dir) in second.log("orchestratord")
                assert str(server.dir) not in second.log("orchestratord"), "the connection string is in a log"
        assert server.sql("SELECT count(*) FROM llorch.job_payloads") in ("0", "1")
        dump = server.sql("SELECT * FROM llorch.jobs")
        assert NEEDLE not in dump


def test_another_state_directory_does_not_end_the_jobs_of_the_first():
    """A start with other keys is refused while a live job needs those of the owner; one that is told to take over does, and the first one ends."""
    with PostgresServer() as server, tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as other, \
            contextlib.ExitStack() as cleanup:
        settings = {"orchestratord.persistence.store": "postgresql",
                    "orchestratord.persistence.postgresql.connection_file": str(server.connection_file(directory))}
        with Stack(settings) as stack:
            job_id = stack.submit_held(prompt=NEEDLE, max_tokens=20, on_disconnect="resume")
            stack.orchestrator.kill()
            stack.orchestrator.wait()
            second = Stack(settings, state_dir=other)
            cleanup.callback(second.stop)
            process = second._spawn("orchestratord", "127.0.0.1:0")
            assert process.wait(HANG_S) == 5
            log = second.log("orchestratord")
            assert "CONFLICT" in log and str(stack.dir) in log and "--take-over" in log, log
            stack.gate.open()
            stack.start_orchestrator()
            assert stack.wait_terminal(job_id)["status"] == "completed"

            # The first one is cut off for so long that somebody tells another one to take over.
            held = stack.submit_held(prompt=NEEDLE, max_tokens=20, on_disconnect="resume")
            stack.orchestrator.send_signal(signal.SIGSTOP)
            server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'jobs' AND pid <> pg_backend_pid()")
            taken = subprocess.run([str(BIN / "orchestratord"), "--state-dir", other, "--take-over", *second._args()], env=second.env,
                                   capture_output=True, text=True, timeout=HANG_S, check=False)
            assert taken.returncode == 0, taken.stderr
            stack.orchestrator.send_signal(signal.SIGCONT)
            wait_for("the first one to end", lambda: ended_when_asked(stack))
            assert stack.orchestrator.returncode == 1
            assert "store.taken_over" in stack.log("orchestratord")
            assert server.sql(f"SELECT status FROM llorch.jobs WHERE job_id = '{held}'") in ("queued", "dispatched", "running")
            second.start_orchestrator()
            assert second.wait_terminal(held)["error"]["code"] == "PAYLOAD_LOST"


def ended_when_asked(stack):
    with contextlib.suppress(OSError, http.client.HTTPException):
        request(stack.url, "GET", "/v2/tasks/no-such-job")
    return stack.orchestrator.poll() is not None


def restarted(server):
    if server.process.poll() is not None:
        server.start()
    return server.run_psql("SELECT 1", "jobs").returncode == 0
