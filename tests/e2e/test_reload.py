"""SIGHUP: orchestratord reads its configuration anew while it serves."""

import json
import signal

from stack import EventStream, Stack, llorch

PROMPT = "Once upon a time"


class Configured:
    """A configuration file with tenants, and the files of their tokens."""

    def __init__(self, directory):
        self.directory = directory
        self.file = directory / "config.yaml"

    def secret(self, name, character):
        path = self.directory / name
        path.write_text(character * 32 + "\n")
        path.chmod(0o600)
        return path

    def write(self, tenants, more=""):
        """`tenants`: id -> (character of its token, what its entry has besides)."""
        lines = [f"    - {{id: {name}, token_file: {self.secret(name, character)}{rest}}}\n"
                 for name, (character, rest) in tenants.items()]
        self.file.write_text("orchestratord:\n" + more + "  tenants:\n" + "".join(lines))


def bearer(character):
    return {"Authorization": f"Bearer {character * 32}"}


def reload(stack, ends_with="config.reloaded"):
    """The line that says what became of it."""
    before = len([line for line in stack.log("orchestratord").splitlines() if ends_with in line])
    stack.orchestrator.send_signal(signal.SIGHUP)
    return json.loads(stack.wait_lines("orchestratord", ends_with, least=before + 1)[-1])


def test_tokens_and_limits_change_while_jobs_run(tmp_path):
    """A token that leaked ends with the next request; nothing that was accepted does, and no stream is another one."""
    config = Configured(tmp_path)
    config.write({"leaks": ("a", ""), "other": ("b", ""), "goes": ("g", "")})
    with Stack(token="o" * 32, env={"LLORCH_CONFIG": str(config.file)}, settings={"orchestratord.worker_slots": "4"}) as stack:
        def submit(who, max_tokens=24):
            body = {"model": "demo", "prompt": PROMPT, "max_tokens": max_tokens, "seed": 7}
            return stack.request("POST", "/v2/tasks", body, headers=bearer(who))

        def stream_of(who, job):
            stream = EventStream(stack.url, f"/v2/tasks/{job}/events", headers=bearer(who))
            assert stream.status == 200
            return stream

        def tokens(stream):
            return [(event.id, event.data) for event in stream if event.name == "token"]

        expected = tokens(stream_of("b", submit("b").json["job_id"]))
        assert expected

        stack.gate.hold()
        jobs = {who: submit(who) for who in ("a", "b", "g")}
        assert all(answer.status == 202 for answer in jobs.values())
        jobs = {who: answer.json["job_id"] for who, answer in jobs.items()}
        streams = {who: stream_of(who, job) for who, job in jobs.items()}
        for job in jobs.values():
            stack.wait_running(job)
        stack.gate.let_pass(4)

        config.write({"leaks": ("x", ", quotas: {max_concurrent_jobs: 1}"), "other": ("b", "")})
        line = reload(stack)
        assert (line["tokens_added"], line["tokens_revoked"], line["tenants"]) == (1, 2, 2), line
        for gone in ("a", "g"):
            assert submit(gone).code == "BAD_TOKEN"
            assert stack.request("GET", f"/v2/tasks/{jobs[gone]}", headers=bearer(gone)).status == 401
        waits = submit("x")
        assert waits.status == 202
        seen = stack.request("GET", f"/v2/tasks/{waits.json['job_id']}", headers=bearer("x"))
        assert seen.status == 200 and seen.json["reason"]["code"] == "WAITING_FOR_QUOTA", seen.body

        before = stack.log("orchestratord").count("config.reloaded")
        config.file.write_text("orchestratord:\n  no_such_key: 1\n")
        line = reload(stack, "config.not_reloaded")
        assert line["error_code"] == "CONFIG_INVALID" and "no_such_key" in line["error"], line
        config.file.write_text("")  # as an editor may hold it for a moment
        assert "is empty" in reload(stack, "config.not_reloaded")["error"]
        config.write({"leaks": ("y", ""), "other": ("b", "")})
        (tmp_path / "leaks").chmod(0o644)
        assert "chmod 600" in reload(stack, "config.not_reloaded")["error"]
        assert stack.log("orchestratord").count("config.reloaded") == before
        assert submit("y").status == 401
        assert stack.request("GET", "/v2/tasks", headers=bearer("x")).status == 200

        stack.gate.open()
        for who, stream in streams.items():
            assert tokens(stream) == expected, who  # the same bytes, those of the revoked tokens too
        for job in (*jobs.values(), waits.json["job_id"]):
            assert stack.wait_terminal(job)["status"] == "completed"


def test_llorch_asks_for_it(tmp_path):
    config = Configured(tmp_path)
    config.write({"small": ("a", "")}, more="  queue: {capacity: 9}\n")
    with Stack(token="o" * 32, env={"LLORCH_CONFIG": str(config.file)}) as stack:
        config.write({"small": ("b", "")}, more="  queue: {capacity: 8}\n")
        asked = llorch("--json", "config", "reload", state_dir=stack.dir)
        assert asked.returncode == 0 and json.loads(asked.stdout)["pid"] == stack.orchestrator.pid, asked
        left = json.loads(stack.wait_lines("orchestratord", "config.needs_restart")[0])
        assert left["keys"] == "orchestratord.queue.capacity"
        assert stack.request("GET", "/v2/tasks", headers=bearer("b")).status == 200
        stack.stop_daemons()
        assert llorch("config", "reload", state_dir=stack.dir).returncode == 3
