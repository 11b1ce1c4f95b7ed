"""llorch as a person uses it."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import urllib.parse

import pytest

from said_server import SaidServer
from stack import BIN, HANG_S, MODEL, REPO, Gate, clean_env, llorch, process_runs, request, wait_for

UP = ["--set", "orchestratord.bind=127.0.0.1:0", "--set", "pool-managerd.bind=127.0.0.1:0"]
# Where nothing answers. With UP no port is looked at either, whatever else runs on this machine.
NOWHERE = ["--url", "http://127.0.0.1:1"]


@pytest.fixture(scope="module")
def gate():
    one = Gate()
    yield one
    one.remove()


@pytest.fixture(scope="module")
def box(tmp_path_factory, gate):
    """A detached stack, started and stopped by the CLI; `gate` holds its workers' steps."""
    state = tmp_path_factory.mktemp("state")
    done = llorch(*UP, "up", "--cpu", "--detach", "--model", str(MODEL), state_dir=state, env=gate.env)
    assert done.returncode == 0, done.stderr
    yield state
    done = llorch("down", state_dir=state)
    assert done.returncode == 0, done.stderr
    assert b"stopped supervisor" in done.stdout
    assert llorch(*NOWHERE, "ps", state_dir=state).returncode == 3


NAME = MODEL.stem


def test_run_streams_text_and_is_repeatable(box):
    args = ["run", NAME, "Once upon a time", "--seed", "7", "--max-tokens", "24", "--stats"]
    first = llorch(*args, state_dir=box)
    assert first.returncode == 0 and len(first.stdout) > 20
    assert b"queue wait" in first.stderr and b"tokens/s" in first.stderr
    assert llorch(*args, state_dir=box).stdout == first.stdout


def test_run_json_and_show(box):
    done = llorch("--json", "run", NAME, "Once upon a time", "--max-tokens", "5", "--temperature", "0", state_dir=box)
    result = json.loads(done.stdout)
    assert result["end"]["tokens_out"] == 5 and result["text"]
    shown = json.loads(llorch("--json", "show", result["job_id"], state_dir=box).stdout)
    assert shown["status"] == "completed" and shown["receipt"] == result["end"]["receipt"]
    assert result["job_id"].encode() in llorch("ps", state_dir=box).stdout
    assert b"cancelled" not in llorch("cancel", result["job_id"], state_dir=box).stdout


def test_prompt_from_standard_input(box):
    done = llorch("run", NAME, "--max-tokens", "3", "--temperature", "0", state_dir=box, input=b"Once upon a time")
    assert done.returncode == 0 and done.stdout


def test_ls_names_the_model(box):
    assert NAME.encode() in llorch("ls", state_dir=box).stdout


def test_ctrl_c_cancels_the_job(box, gate):
    gate.hold()
    gate.let_pass(8)
    process = subprocess.Popen([str(BIN / "llorch"), "--state-dir", str(box), "run", NAME, "Once", "--max-tokens", "400", "--seed", "7"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env(box))
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(HANG_S) == 130
    wait_for("the job to be cancelled", lambda: any(
        j["status"] == "cancelled" for j in json.loads(llorch("--json", "ps", state_dir=box).stdout)["tasks"]))
    gate.open()


def test_a_full_disk_is_told_and_ends_the_job(box, gate):
    gate.hold()
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen([str(BIN / "llorch"), "--state-dir", str(box), "run", NAME, "Once", "--max-tokens", "402", "--seed", "7"],
                                   stdout=full, stderr=subprocess.PIPE, env=clean_env(box))
        gate.let_pass(8)
        _, said = process.communicate(timeout=HANG_S)
    gate.open()
    assert process.returncode == 1, said
    assert b"cannot write standard output: No space left on device" in said and b"interrupted" not in said
    wait_for("the job to be cancelled", lambda: all(
        j["status"] in ("completed", "cancelled") for j in json.loads(llorch("--json", "ps", state_dir=box).stdout)["tasks"]))


def test_a_pipe_that_is_closed_ends_the_job_quietly(box, gate):
    gate.hold()
    gate.let_pass(8)
    process = start(box, "run", NAME, "Once", "--max-tokens", "401", "--seed", "7")
    process.stdout.read(1)
    process.stdout.close()
    gate.let_pass(8)
    assert process.wait(HANG_S) == 130 and process.stderr.read() == b""
    wait_for("the job to be cancelled", lambda: any(
        j["status"] == "cancelled" for j in json.loads(llorch("--json", "ps", state_dir=box).stdout)["tasks"][:1]))
    gate.open()


def start(box, *args):
    return subprocess.Popen([BIN / "llorch", "--state-dir", box, *args], env=clean_env(box, {}), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def test_attach_streams_another_ones_job_and_leaves_it(box, gate):
    """A second job waits behind the first: `queue` names it, part of its id is enough, and who attached may go."""
    gate.hold()
    first, second = (start(box, "--json", "run", NAME, "Once upon a time", "--max-tokens", "5", "--seed", seed) for seed in "12")

    def jobs(*command):
        return json.loads(llorch("--json", *command, state_dir=box).stdout)["tasks"]

    def waiting():
        return [j["job_id"] for j in jobs("queue")] if len([j for j in jobs("ps") if j["status"] in ("queued", "running")]) == 2 else None

    (job_id,) = wait_for("one to run and one to wait", lambda: (found := waiting()) and len(found) == 1 and found)
    assert job_id[:13].encode() in llorch("queue", state_dir=box).stdout
    gone = start(box, "attach", job_id[:13])
    watcher = start(box, "--json", "attach", job_id[:13])
    for attached in (gone, watcher):
        attached.stderr.read(1)  # it says what the job waits for
    gone.send_signal(signal.SIGINT)
    assert gone.wait(HANG_S) == 130 and b"goes on" in gone.stderr.read()
    gate.open()
    seen = json.loads(watcher.communicate(timeout=HANG_S)[0])
    results = [json.loads(run.communicate(timeout=HANG_S)[0]) for run in (first, second)]
    (own,) = [r for r in results if r["job_id"] == job_id]
    assert (seen["text"], seen["end"]) == (own["text"], own["end"])
    assert llorch("attach", "no-such-job", state_dir=box).returncode == 1


def test_attach_is_no_client_of_the_job(box, gate):
    """The only one that looks at a job whose client leaving would cancel it, and leaves: it goes on to its end."""
    url = "http://" + json.loads((box / "run/orchestratord.json").read_text())["bind"]
    gate.hold()
    job_id = request(url, "POST", "/v2/tasks", {"model": NAME, "prompt": "Once", "max_tokens": 4, "seed": 7}).json["job_id"]
    attached = start(box, "attach", job_id)
    gate.let_pass(2)
    assert attached.stdout.read(1), "it reads along"
    attached.send_signal(signal.SIGINT)
    assert attached.wait(HANG_S) == 130 and b"goes on" in attached.stderr.read()
    gate.open()
    ended = wait_for("its end", lambda: (job := request(url, path=f"/v2/tasks/{job_id}").json)["status"] in ("completed", "cancelled", "failed") and job)
    assert ended["status"] == "completed", ended


def test_a_credential_that_cannot_be_written_is_shown(box, tmp_path):
    """By then the old one has ended."""
    file = tmp_path / "credential"
    file.write_text("another\n")
    (tmp_path / "credential.replaced").mkdir()  # where what the file holds is to go
    try:
        done = llorch("--json", "pool", "pair", "other", "--out", str(file), state_dir=box)
        assert done.returncode == 1 and json.loads(done.stderr)["error"]["code"] == "IO_ERROR", done.stderr
        shown = json.loads(done.stdout)
        assert shown["pool_id"] == "other" and shown["credential"]
        done = llorch("pool", "pair", "other", "--out", str(file), state_dir=box)
        assert done.returncode == 1 and done.stdout.strip() and b"IO_ERROR" in done.stderr
        assert file.read_text() == "another\n"
    finally:
        llorch("pool", "unpair", "other", state_dir=box)


def test_words_that_are_no_commands(box):
    wrong = llorch("attahc", "x", state_dir=box)
    assert wrong.returncode == 2 and b"did you mean attach?" in wrong.stderr
    assert b"did you mean" not in llorch("--nonsense", "run", state_dir=box).stderr
    for words, told in ((("list",), "did you mean ls?"), (("pool", "drian", "x"), "no command drian; did you mean drain?"),
                        (("xyzzy",), "There is no command xyzzy. `llorch --help`"), (("pool",), "llorch pool needs one of: "),
                        ((), "llorch up --detach"), (("run", "--nonsense"), "`llorch run --help`")):
        wrong = llorch(*words, state_dir=box)
        assert wrong.returncode == 2 and told in wrong.stderr.decode() and wrong.stdout == b"", wrong.stderr


def test_what_has_no_place_is_told_as_it_was_typed(tmp_path):
    quotes = 'A prompt of several words stands in quotes: llorch run MODEL "Once upon a time"'
    for words, *told in (("run m Once upon a time", "not expected: upon a time\n", quotes), ("run m Once upon", "not expected: upon\n", quotes),
                         ("run m Once upon -- a time", "not expected: upon a time\n", quotes),
                         ("ps a b", "not expected: a b\n`llorch ps --help`"), ("chat m be brief", "not expected: be brief\n", "typed once it has begun"),
                         ("run m --temprature 1 Once", "There is no option --temprature; did you mean --temperature? `llorch run --help`"),
                         ("run m Once --temprature=1", "did you mean --temperature?"), ("run m Once -seed 1", "did you mean --seed?"),
                         ("--seed 1 run m Once", "--seed stands behind its command: llorch run --seed\n"), ("ps --jsn", "did you mean --json?"),
                         ("ps --nonsense", "There is no option --nonsense. `llorch ps --help`")):
        done = llorch(*words.split(), state_dir=tmp_path)
        assert done.returncode == 2 and all(one in done.stderr.decode() for one in told), (words, done.stderr)
    assert quotes not in llorch("ps", "a", "b", state_dir=tmp_path).stderr.decode()
    told = json.loads(llorch("--json", "run", "m", "Once", "upon", "a", "time", state_dir=tmp_path).stderr)["error"]["message"]
    assert "not expected: upon a time A prompt" in told and "\n" not in told


def test_a_pull_of_neither_a_name_nor_a_reference_is_no_job(tmp_path):
    file = tmp_path / "tale.gguf"
    file.touch()
    (tmp_path / "models/tale").mkdir(parents=True)
    with SaidServer() as server:
        for model, told in (("foo/bar", "did you mean hf:foo/bar?"), ("/nowhere/x.gguf", "did you mean file:/nowhere/x.gguf?"),
                            ("./tale.gguf", f"did you mean file:{file}?"), ("", "no name")):
            done = llorch("--url", server.url, "pull", model, state_dir=tmp_path, cwd=tmp_path)
            assert done.returncode == 2 and told in done.stderr.decode(), (model, done.stderr)
        for model in ("models/", "models/tale", "/", str(tmp_path)):
            done = llorch("--url", server.url, "pull", model, state_dir=tmp_path, cwd=tmp_path)
            assert done.returncode == 2 and b"nor a reference. A repository" in done.stderr, (model, done.stderr)
        assert server.asked == []


def job_view(job_id, status, **fields):
    return {"job_id": job_id, "task_id": job_id, "status": status, "model": "m", "model_ref": "m", "priority": "interactive", "submitted_at": "now",
            "attempts": 0, "tokens_in": 0, "tokens_out": 0, "on_disconnect": "cancel", "events_url": "", **fields}


def job_id_of(number):
    return f"{number:08x}-0000-4000-8000-000000000000"


RUNS, WAITS = job_id_of(0xBAD), job_id_of(0xADDED)


def listing(count, behind=None, knows_live=True):
    """GET /v2/tasks of so many jobs. All have ended, but that the oldest waits, and the one behind it runs; `behind` the first page is that error.
    An older server does not know `live` and lists all."""
    ids = [job_id_of(number << 16) for number in reversed(range(2, count))] + [RUNS, WAITS]
    jobs = [job_view(job_id, "completed") for job_id in ids[:-2]] + [job_view(RUNS, "running"), job_view(WAITS, "queued", queue_position=0)]

    def page(query):
        wanted = {name: values[0] for name, values in urllib.parse.parse_qs(query).items()}
        if behind is not None and "before" in wanted:
            return behind
        first = ids.index(wanted["before"]) + 1 if "before" in wanted else 0
        found = jobs[first:]
        if knows_live and wanted.get("live") == "true":
            found = [job for job in found if job["status"] in ("queued", "running")]
        tasks = found[:int(wanted.get("limit", 50))]
        more = {"next_before": tasks[-1]["job_id"]} if len(tasks) == int(wanted.get("limit", 50)) else {}
        return {"tasks": tasks, **more}

    return {"/v2/tasks": page, f"/v2/tasks/{WAITS}": jobs[-1], "/v2/tasks/nobody": "JOB_NOT_FOUND", "/v2/tasks/beef": "JOB_NOT_FOUND"}


def asked_of(server, path):
    """How often, since the last call."""
    count = sum(one.partition("?")[0] == path for one, _, _ in server.asked)
    server.asked.clear()
    return count


def test_jobs_that_live_are_found_behind_many_that_have_ended(tmp_path):
    with SaidServer(answers=listing(1200)) as server:
        def said(*command):
            done = llorch("--url", server.url, *command, state_dir=tmp_path)
            assert done.returncode == 0 and done.stderr == b"", done.stderr
            return done.stdout.decode()

        shown = json.loads(said("--json", "ps"))
        assert asked_of(server, "/v2/tasks") == 2, "each request counts in a tenant's throttle"
        ids = [job["job_id"] for job in shown["tasks"]]
        assert ids == [job_id_of(number << 16) for number in range(1199, 1149, -1)] + [RUNS, WAITS]
        assert shown["next_before"] == job_id_of(1150 << 16), "behind it no job is missed"
        assert [line.split()[0] for line in said("ps").splitlines()] == ids
        asked_of(server, "/v2/tasks")
        assert WAITS in said("queue") and asked_of(server, "/v2/tasks") == 1, "one request says what waits"
        assert WAITS in said("show", WAITS[:6])


def test_where_jobs_were_not_looked_at_it_is_said(tmp_path):
    told = "jobs before the newest 3000 were not looked at"
    with SaidServer(answers=listing(3100)) as server:
        for command, shown in (("ps", RUNS), ("queue", WAITS)):
            said = llorch("--url", server.url, command, state_dir=tmp_path)
            assert said.returncode == 0 and said.stderr == b"" and shown.encode() in said.stdout, said
    with SaidServer(answers=listing(3100, knows_live=False)) as server:
        for command, told, asks in (("ps", told.replace("3000", "3050"), 4), ("queue", told, 3)):
            said = llorch("--url", server.url, command, state_dir=tmp_path)
            assert said.returncode == 0 and said.stderr.decode() == f"llorch: {told}\n" and RUNS.encode() not in said.stdout
            assert asked_of(server, "/v2/tasks") == asks, "each page counts in a tenant's throttle"
            said = llorch("--url", server.url, "--json", command, state_dir=tmp_path)
            assert said.returncode == 0 and "tasks" in json.loads(said.stdout) and json.loads(said.stderr) == {"event": "jobs_left_out", "human": told}
            assert asked_of(server, "/v2/tasks") == asks
    for behind in ("QUOTA_EXCEEDED", ("INVALID_PARAMS", {"field": "before"})):
        with SaidServer(answers=listing(1200, behind)) as server:
            said = llorch("--url", server.url, "ps", state_dir=tmp_path)
            assert said.returncode == 0 and len(said.stdout.splitlines()) == 50, (behind, said)
            assert said.stderr.startswith(b"llorch: jobs before the newest 50 were not looked at: "), said.stderr


def test_jobs_that_could_not_be_listed_are_an_error(tmp_path):
    for behind, code in (("BAD_TOKEN", 4), ("INTERNAL", 1), (("INVALID_PARAMS", {"field": "limit"}), 2)):
        with SaidServer(answers=listing(1200, behind, knows_live=False)) as server:
            for command in (("ps",), ("queue",), ("show", "04af")):
                done = llorch("--url", server.url, *command, state_dir=tmp_path)
                assert done.returncode == code and done.stdout == b"", (behind, command, done)


def of_tenants(server_knows=True):
    """GET /v2/tasks of two tenants and the operator; `server_knows`: whose each job is, and how to list one tenant's."""
    whose = {job_id_of(1): "ann", job_id_of(2): "ben", job_id_of(3): None, job_id_of(4): "ann", job_id_of(5): "ann"}
    states = dict.fromkeys(whose, "queued") | {job_id_of(4): "completed", job_id_of(5): "running"}

    def page(query):
        wanted = urllib.parse.parse_qs(query).get("tenant", [None])[0] if server_knows else None
        return {"tasks": [job_view(job, states[job], **({"queue_position": 0} if states[job] == "queued" else {}),
                                   **({"tenant_id": tenant} if tenant and server_knows else {}))
                          for job, tenant in whose.items() if wanted in (None, tenant)]}

    return {"/v2/tasks": page, **{f"/v2/tasks/{job['job_id']}": job for job in page("")["tasks"]}}


def test_an_operator_sees_whose_jobs_are_and_ends_one_tenants(tmp_path):
    with SaidServer(answers=of_tenants()) as server:
        def said(*command, code=0):
            server.asked.clear()
            done = llorch("--url", server.url, *command, state_dir=tmp_path)
            assert done.returncode == code, (command, done)
            return done.stdout.decode()

        def columns(text, at):
            return [line.split()[at] for line in text.splitlines()]

        assert columns(said("ps"), -1) == ["ann", "ben", "-", "ann", "ann"] and columns(said("queue"), -1) == ["ann", "ben", "-"]
        assert "tenant     ann\n" in said("show", job_id_of(1)) and "tenant" not in said("show", job_id_of(3))
        assert columns(said("ps", "--tenant", "ann"), 0) == [job_id_of(1), job_id_of(4), job_id_of(5)]
        assert len(said("cancel", "--tenant", "ann").splitlines()) == 2
        assert [path for path, _, _ in server.asked[1:]] == [f"/v2/tasks/{job_id_of(number)}/cancel" for number in (1, 5)]
        server.refused = {server.jobs}
        said("cancel", "--tenant", "ann", code=4)
        assert len(server.asked) == 3, "what fails for one holds up no other"
        server.refused = {server.jobs: ("QUOTA_EXCEEDED", {"retry_after_ms": 1}), server.jobs + 2: ("JOB_NOT_FOUND",)}
        said("cancel", "--tenant", "ann")
        assert [path for path, _, _ in server.asked[1:]] == [f"/v2/tasks/{job_id_of(number)}/cancel" for number in (1, 1, 5)]
        said("cancel", "--tenant", "eve")
        for bad in (("cancel",), ("cancel", "--tenant", ""), ("cancel", "--tenant", "a b"), ("cancel", "--tenant", "a" * 65), ("cancel", job_id_of(1), "--tenant", "ann"), ("ps", "--tenant", "")):
            said(*bad, code=2)
            assert server.asked == [], bad
    with SaidServer(answers=of_tenants(server_knows=False)) as server:
        assert "ann" not in said("ps") and said("ps", "--tenant", "ann") == "" and said("cancel", "--tenant", "ann") == ""
        assert all(path.startswith("/v2/tasks?") for path, _, _ in server.asked), "an older server lists everybody's jobs, and none is ended"


def test_a_part_of_an_id_names_one_job(tmp_path):
    job_id = job_id_of(3099 << 16)
    part, common = job_id[:6], job_id[:3]

    def cancel(server, part, *flags):
        done = llorch("--url", server.url, *flags, "cancel", part, state_dir=tmp_path)
        return done, asked_of(server, f"/v2/tasks/{job_id}/cancel")

    with SaidServer(answers=listing(3100)) as server:
        done, cancels = cancel(server, part)
        assert done.returncode == 0 and cancels == 1 and done.stderr == b"llorch: jobs before the newest 3000 were not looked at\n", done
        done, cancels = cancel(server, part, "--json")
        assert done.returncode == 0 and cancels == 1 and json.loads(done.stderr)["event"] == "jobs_left_out", done
        done, cancels = cancel(server, job_id)
        assert done.returncode == 0 and cancels == 1 and done.stderr == b"", done
        done, cancels = cancel(server, common)
        assert done.returncode == 2 and cancels == 0 and f"jobs have an id that begins with {common}" in done.stderr.decode(), done
        done = llorch("--url", server.url, "show", "beef", state_dir=tmp_path)
        assert done.returncode == 1 and b"neither a model nor a job" in done.stderr and b"the newest 3000" in done.stderr, done
        server.asked.clear()
        done = llorch("--url", server.url, "show", "nobody", state_dir=tmp_path)
        assert done.returncode == 1 and b"neither a model nor a job" in done.stderr and b"the newest" not in done.stderr, done
        assert asked_of(server, "/v2/tasks") == 0, "no id begins so"
    for behind, code in (("QUOTA_EXCEEDED", 1), (("INVALID_PARAMS", {"field": "before"}), 2)):
        with SaidServer(answers=listing(3100, behind)) as server:
            done, cancels = cancel(server, part)
            assert done.returncode == code and cancels == 0 and done.stdout == b"", ("another may begin so", behind, done)


def test_what_a_model_takes_is_known_before_it_is_asked(box):
    """ORCH-3093, ORCH-3094: the service tells what each engine takes, and a job that wants more is refused at once, with the numbers."""
    assert llorch("run", NAME, "Once upon a time", "--max-tokens", "1", state_dir=box).returncode == 0
    daemon = json.loads((box / "run/orchestratord.json").read_text())
    capabilities = request("http://" + daemon["bind"], path="/v2/meta/capabilities").json
    assert re.fullmatch(r"\d+\.\d+\.\d+", capabilities["api_version"])
    [engine] = capabilities["engines"]
    assert engine["engine"] and engine["engine_version"] and engine["sampler_profile_version"] and engine["slots_total"] == 1
    assert {"completion"} <= set(engine["supported_workloads"]) and engine["pools"] == ["pool-1"]
    [model] = capabilities["models"]
    assert NAME in model["model_ids"] and 0 < model["max_tokens_out"] <= model["ctx_max"] == engine["ctx_max"]
    assert capabilities["limits"]["max_tokens"] == engine["max_tokens_out"] >= model["max_tokens_out"]

    def jobs():
        return [job["job_id"] for job in json.loads(llorch("--json", "ps", state_dir=box).stdout)["tasks"]]

    before = jobs()
    for too_many in (model["ctx_max"] + 1, capabilities["limits"]["max_tokens"] + 1):
        refused = llorch("run", NAME, "Once upon a time", "--max-tokens", str(too_many), state_dir=box)
        assert refused.returncode == 2 and str(too_many) in refused.stderr.decode(), refused.stderr
    assert jobs() == before, "nothing was queued"


def test_a_crashed_daemon_is_started_again(box):
    record = json.loads((box / "run/orchestratord.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    wait_for("it to be gone", lambda: not process_runs(record["pid"]))
    done = llorch("ps", state_dir=box)
    assert done.returncode == 0 or b"starts it again" in done.stderr, done.stderr

    def restarted():
        try:
            return json.loads((box / "run/orchestratord.json").read_text())["pid"] != record["pid"]
        except (OSError, ValueError):
            return False

    wait_for("the supervisor to restart orchestratord", restarted)
    done = llorch("run", NAME, "Once", "--max-tokens", "3", state_dir=box)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("content", [b"", b"no model at all", MODEL.read_bytes()[:5000]], ids=["empty", "text", "cut"])
def test_up_refuses_a_file_that_is_no_model(tmp_path, content):
    """Said by `up`, which names the file, and not by the first job."""
    file = tmp_path / "broken.gguf"
    file.write_bytes(content)
    done = llorch(*UP, "up", "--cpu", "--detach", "--model", str(file), state_dir=tmp_path / "state")
    assert done.returncode == 1 and str(file).encode() in done.stderr, (done.returncode, done.stderr)
    assert not list((tmp_path / "state" / "run").glob("*.json")), "something was started"


def test_files_are_served_under_the_names_they_have(tmp_path):
    """Most published files have a dot in their name; some have what no name can have."""
    names = {"Tale2.5-0.5B-v1.0.Q8_0": "Tale2.5-0.5B-v1.0.Q8_0", "a tale (1)": "a-tale--1-", "UP": "UP"}
    files = []
    for index, stem in enumerate(names):
        files += ["--model", str(tmp_path / str(index) / f"{stem}.{'GGUF' if stem == 'UP' else 'gguf'}")]
        (tmp_path / str(index)).mkdir()
        shutil.copy(MODEL, files[-1])
    state = tmp_path / "a state"
    done = llorch(*UP, "up", "--cpu", "--detach", *files, state_dir=state)
    try:
        assert done.returncode == 0, done.stderr
        assert f"a-tale--1- is {files[3]}" in done.stdout.decode(), done.stdout
        [hint] = [line.split(maxsplit=1)[1] for line in done.stdout.decode().splitlines() if line.startswith("try ")]
        assert shlex.split(hint) == ["llorch", "--state-dir", str(state), "run", next(iter(names)), "Once upon a time"], "as it stands it finds the stack"
        said = {llorch("run", name, "Once", "--max-tokens", "3", "--seed", "1", state_dir=state).stdout for name in names.values()}
        assert len(said) == 1 and said != {b""}
    finally:
        llorch("down", state_dir=state)


def test_logs_of_up_outlive_their_files(tmp_path):
    """A log that was moved away, or whose directory was removed, goes on in a new file without a signal to anybody."""
    state = tmp_path / "state"
    done = llorch(*UP, "up", "--cpu", "--detach", state_dir=state)
    assert done.returncode == 0, done.stderr
    log = state / "logs/orchestratord.log"
    wait_for("its first lines", lambda: log.exists() and '"event":"listening"' in log.read_text())
    log.rename(tmp_path / "moved.log")
    (state / "logs").rename(tmp_path / "removed")  # at once: a log that is written meanwhile is made anew
    shutil.rmtree(tmp_path / "removed")
    assert llorch("down", state_dir=state).returncode == 0
    for name in ("orchestratord", "pool-managerd"):
        assert '"event":"shutdown"' in (state / f"logs/{name}.log").read_text()


def test_logs_are_read_back_in_order(box):
    job = json.loads(llorch("--json", "run", NAME, "Once", "--max-tokens", "2", state_dir=box).stdout)["job_id"]
    told = [json.loads(line) for line in llorch("logs", "-n", "0", state_dir=box).stdout.splitlines() if b'"ts"' in line]
    assert {"orchestratord", "pool-managerd", "worker-orcd"} <= {entry["component"] for entry in told}
    first = {component: min(i for i, entry in enumerate(told) if entry["component"] == component)
             for component in ("orchestratord", "pool-managerd", "worker-orcd")}
    assert first["orchestratord"] < first["pool-managerd"] < first["worker-orcd"], "by time and not by file"
    assert max(i for i, entry in enumerate(told) if entry["component"] == "orchestratord") > first["worker-orcd"]
    wait_for("the job in the log", lambda: job.encode() in llorch("logs", "-n", "0", "orchestratord", state_dir=box).stdout)
    workers = llorch("logs", "worker-orcd", state_dir=box).stdout.splitlines()
    assert workers and all(json.loads(line).get("component", "worker-orcd") == "worker-orcd" for line in workers)
    assert len(llorch("logs", "--lines", "3", state_dir=box).stdout.splitlines()) == 3
    nobody = llorch("logs", "nobody", state_dir=box)
    assert nobody.returncode == 2 and b"orchestratord" in nobody.stderr


def test_logs_are_followed(box):
    with subprocess.Popen([str(BIN / "llorch"), "--state-dir", str(box), "logs", "-f", "-n", "1", "orchestratord"],
                          stdout=subprocess.PIPE, env=clean_env(box)) as follower:
        try:
            assert follower.stdout.readline()
            job = json.loads(llorch("--json", "run", NAME, "Once", "--max-tokens", "2", state_dir=box).stdout)["job_id"]
            while job.encode() not in (line := follower.stdout.readline()):
                assert line, "it ended"
        finally:
            follower.terminate()


def test_logs_of_no_stack(tmp_path):
    done = llorch("logs", state_dir=tmp_path)
    assert done.returncode == 2 and b"llorch up" in done.stderr


def test_config_is_shown_described_and_checked(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("orchestratord:\n  queue:\n    capacity: 7\nmodels:\n  aliases:\n    tale: file:/tale.gguf\n")
    named = ["--config", str(file), "--set", "log.level=debug"]
    changed = llorch(*named, "config", "show", "--changed", state_dir=tmp_path).stdout.decode().splitlines()
    assert changed == ["* orchestratord.queue.capacity = 7", '* models.aliases = {"tale":"file:/tale.gguf"}', '* log.level = "debug"']
    shown = llorch(*named, "config", "show", state_dir=tmp_path).stdout.decode().splitlines()
    assert set(changed) < set(shown) and "  orchestratord.retry.max_attempts = 5" in shown
    whole = json.loads(llorch("--json", *named, "config", "show", state_dir=tmp_path).stdout)
    assert whole["orchestratord"]["queue"]["capacity"] == 7
    assert json.loads(llorch("config", "schema", state_dir=tmp_path).stdout) == json.loads(
        (REPO / "contracts/schema/config.json").read_text())
    assert llorch("config", "validate", str(file), state_dir=tmp_path).returncode == 0
    for text, said in (("orchestratord:\n  queue:\n    capactiy: 7\n", b"capactiy"), ("log: [", b"broken.yaml"),
                       (f"auth:\n  token_file: {tmp_path}/none\n", b"none")):
        broken = tmp_path / "broken.yaml"
        broken.write_text(text)
        done = llorch("config", "validate", str(broken), state_dir=tmp_path)
        assert done.returncode in (1, 2) and said in done.stderr, (done.returncode, done.stderr)
        assert "error" in json.loads(llorch("--json", "config", "validate", str(broken), state_dir=tmp_path).stderr)


def test_what_no_daemon_starts_with_is_not_valid(tmp_path):
    token, config, state = tmp_path / "token", tmp_path / "config.yaml", tmp_path / "state"
    token.write_text(40 * "x")
    token.chmod(0o600)
    credential = tmp_path / "credential"
    credential.write_text(f"pool-2:{64 * 'c'}\n")
    credential.chmod(0o600)
    said = f"auth: {{token_file: {token}}}\n"
    for daemon, text, code, why in (
            ("orchestratord", "orchestratord: {bind: '0.0.0.0:0'}\n", 4, b"NON_LOOPBACK_WITHOUT_TOKEN"),
            ("orchestratord", "orchestratord: {bind: 'example.org:0'}\n" + said, 2, b"not an IP address"),
            ("orchestratord", f"auth: {{token_file: {token}, reader_token_files: [{token}]}}\n", 2, b"the token of another caller"),
            ("orchestratord", f"orchestratord: {{bind: '127.0.0.1:0'}}\nmodels: {{chat_format: {{'file:{MODEL}': spoken}}}}\n", 2, b"no chat format"),
            ("pool-managerd", "pool-managerd: {bind: '0.0.0.0:0'}\n", 4, b"llorch pool pair"),
            ("pool-managerd", "pool-managerd: {bind: '0.0.0.0:0'}\n" + said, 2, b"pool-managerd.advertise"),
            ("pool-managerd", f"pool-managerd: {{credential_file: {credential}}}\n", 2, b"is the credential of pool pool-2"),
            ("pool-managerd", f"models: {{pull: {{s3_key_file: {token}}}}}\n", 2, b"s3_key_file holds no key id")):
        config.write_text(text)
        checked = llorch("config", "validate", str(config), state_dir=state)
        assert checked.returncode == code and why in checked.stderr, (text, checked)
        assert not state.exists(), "nothing is made"
        started = subprocess.run([BIN / daemon, "--config", config, "--state-dir", tmp_path / "other"], env=clean_env(state), capture_output=True,
                                 timeout=HANG_S, check=False)
        assert started.returncode == code and why in started.stderr, (text, started)
    config.write_text(f"auth: {{token_file: {token}}}\norchestratord: {{bind: '0.0.0.0:0'}}\n"
                      f"pool-managerd: {{pool_id: pool-2, bind: '0.0.0.0:0', advertise: gpu-box, credential_file: {credential}}}\n")
    checked = llorch("config", "validate", str(config), state_dir=state)
    assert checked.returncode == 0, checked.stderr


def test_a_file_that_the_environment_names_is_there(tmp_path):
    missing = tmp_path / "config.yaml"
    for program in ("orchestratord", "pool-managerd", "llorch"):
        arguments = ["config", "validate"] if program == "llorch" else ["--bind", "127.0.0.1:0"]
        done = subprocess.run([BIN / program, "--state-dir", tmp_path / "state", *arguments], capture_output=True, timeout=HANG_S, check=False,
                              env=clean_env(tmp_path / "state", {"LLORCH_CONFIG": str(missing)}))
        assert done.returncode == 2 and str(missing).encode() in done.stderr and b"LLORCH_CONFIG" in done.stderr, (program, done)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_secret_that_the_daemons_cannot_read_is_named(tmp_path):
    """Root reads it, so that only its owner tells."""
    state, secret, config = tmp_path / "state", tmp_path / "token", tmp_path / "config.yaml"
    state.mkdir()
    secret.write_text(40 * "x")
    secret.chmod(0o600)
    config.write_text(f"auth: {{token_file: {secret}}}\n")
    for owner, secrets_owner, named in ((54321, 0, True), (0, 0, False), (0, 54321, False), (54321, 54321, False)):
        os.chown(state, owner, -1)
        os.chown(secret, secrets_owner, -1)
        done = llorch("config", "validate", str(config), state_dir=state)
        assert done.returncode == 0 and done.stdout == b"the configuration is valid\n", done
        assert (f"chown {owner} {secret}" in done.stderr.decode()) == named, done.stderr


def test_up_twice_is_refused(box):
    done = llorch(*UP, "up", "--cpu", "--detach", state_dir=box)
    assert done.returncode == 1 and b"ALREADY_RUNNING" in done.stderr


def test_without_gpu_and_without_cpu_flag_up_says_what_to_do(tmp_path):
    """ORCH-1102 POOL-2110 HME-013: no silent fallback."""
    if os.path.exists("/dev/nvidia0"):
        pytest.skip("this machine has an NVIDIA GPU")
    done = llorch(*UP, "up", state_dir=tmp_path)
    assert done.returncode == 4 and b"NO_GPU" in done.stderr and b"--cpu" in done.stderr
    assert llorch(*NOWHERE, "ps", state_dir=tmp_path).returncode == 3
    for _ in range(5):  # who does as told finds the directory free at once
        done = llorch(*UP, "up", "--detach", state_dir=tmp_path)
        assert done.returncode == 4 and b"NO_GPU" in done.stderr, done.stderr


def test_usage_errors_exit_2(tmp_path):
    for args in (["no-such-command"], ["run"], ["--set", "no.such.key=1", "ps"], ["run", "m", "p", "--max-tokens", "0"],
                 *(["run", "m", "p", "--seed", seed] for seed in ("-1", "18446744073709551616", "1x")),
                 *(["run", "m", "p", flag, "nan"] for flag in ("--top-p", "--temperature", "--presence-penalty"))):
        assert llorch(*NOWHERE, *args, state_dir=tmp_path).returncode == 2, args
    assert llorch(*NOWHERE, "run", "m", "p", "--seed", "18446744073709551615", "--top-p", "0.5", state_dir=tmp_path).returncode == 3
    told = json.loads(llorch("--json", "frob", state_dir=tmp_path).stderr)["error"]["message"]
    assert "no command frob" in told and "\n" not in told


def test_an_empty_name_stops_nothing(tmp_path):
    """`llorch stop "$MODEL"` with a variable that has no value."""
    done = llorch("stop", "", state_dir=tmp_path)
    assert done.returncode == 2 and b"the model has no name" in done.stderr and done.stdout == b"", (done.stdout, done.stderr)
    assert llorch("stop", state_dir=tmp_path).stdout == b"nothing runs here\n", "without MODEL it is down"


def test_help_is_a_word_too(tmp_path):
    for words in ((), ("run",), ("model", "quantize")):
        asked = llorch("help", *words, state_dir=tmp_path)
        assert asked.returncode == 0 and asked.stdout == llorch(*words, "--help", state_dir=tmp_path).stdout != b""
    assert llorch("help", "help", state_dir=tmp_path).stdout == llorch("--help", state_dir=tmp_path).stdout


def test_help_of_no_command_is_refused(tmp_path):
    for words, told in ((("help", "pul"), "There is no command pul; did you mean pull?"), (("nothing", "--help"), "There is no command nothing."),
                        (("help", "pool", "drian"), "There is no command drian; did you mean drain?")):
        asked = llorch(*words, state_dir=tmp_path)
        assert asked.returncode == 2 and told in asked.stderr.decode() and asked.stdout == b"", (words, asked)
    assert "no command nothing" in json.loads(llorch("--json", "help", "nothing", state_dir=tmp_path).stderr)["error"]["message"]
    assert llorch("--nonsense", "--help", state_dir=tmp_path).returncode == 0, "no word is asked about"


def test_an_option_without_its_value_is_told_so(tmp_path):
    for words, told in ((("--config",), "--config: 1 required"), (("--url",), "--url: 1 required"), (("-v",), "There is no option -v; did you mean --version?"),
                        (("--statedir", "x"), "There is no option --statedir; did you mean --state-dir?"), (("pool", "--jso"), "did you mean --json?")):
        done = subprocess.run([BIN / "llorch", *words], env=clean_env(tmp_path), capture_output=True, timeout=HANG_S, check=False)
        assert done.returncode == 2 and told in done.stderr.decode() and done.stdout == b"", (words, done.stderr)


def test_what_is_no_model_is_told_so(box, tmp_path):
    (tmp_path / "file.bin").write_text("x")
    for command, told in ((("run", "./none.gguf", "x"), "there is no file ./none.gguf"),
                          (("run", "none.gguf", "x"), "there is no file none.gguf here"),
                          (("run", str(tmp_path / "file.bin"), "x"), "neither a .gguf file nor"),
                          (("run", "", "x"), "no name"), (("chat", "nobody"), "no model has the name nobody"),
                          (("show", "nobody"), "neither a model nor a job"), (("show", "no:body"), "neither a model nor a job")):
        done = llorch(*command, state_dir=box, input=b"")
        assert done.returncode in (1, 2) and told in done.stderr.decode(), (command, done.stderr)
    done = llorch("rm", "nobody", NAME, "another", state_dir=box)
    assert done.returncode == 1 and [name in done.stderr.decode() for name in ("model: nobody", f"model: {NAME}", "model: another")] == [True] * 3
    done = llorch("verify", "--files", NAME, state_dir=box)
    assert done.returncode == 1 and b"llorch pull file:/PATH --name NAME" in done.stderr, done.stderr


def test_up_refuses_names_that_no_job_could_use(tmp_path):
    (tmp_path / "other").mkdir()
    for name in ("tale", "tale.gguf", "other/tale.gguf"):
        shutil.copy(MODEL, tmp_path / name)

    def refused(*files):
        done = llorch(*UP, "up", "--cpu", "--detach", *(word for file in files for word in ("--model", str(tmp_path / file))),
                      state_dir=tmp_path / "state")
        if done.returncode == 0:
            llorch("down", state_dir=tmp_path / "state")
        assert done.returncode != 0
        return done.stderr.decode()

    assert ".gguf" in refused("tale")
    both = refused("tale.gguf", "other/tale.gguf")
    assert "CONFLICT" in both and str(tmp_path / "tale.gguf") in both and str(tmp_path / "other/tale.gguf") in both
    assert "there is no file" in refused("none.gguf")


def test_doctor_and_version(tmp_path):
    done = llorch("--json", *NOWHERE, *UP, "doctor", state_dir=tmp_path)
    checks = {c["check"]: c for c in json.loads(done.stdout)["checks"]}
    assert checks["cpu"]["ok"] and checks["programs"]["ok"] and not checks["stack"]["ok"]
    assert done.returncode == (3 if checks["nvidia driver"]["ok"] else 1)
    assert all(check["next"] for check in checks.values() if not check["ok"]), "what to do is said of all that is wrong"
    cpu = llorch(*NOWHERE, *UP, "--set", "devices.allow_cpu=true", "doctor", state_dir=tmp_path)
    assert cpu.returncode == 3 and b"llorch up" in cpu.stdout, "only the stack is missing"
    told = llorch("version", state_dir=tmp_path).stdout
    assert told.startswith(b"llorch 0.") and b"\nCUDA kernels: " in told


def test_doctor_of_a_stack_that_serves(box):
    done = llorch("--json", "doctor", state_dir=box)
    checks = {c["check"]: c for c in json.loads(done.stdout)["checks"]}
    assert done.returncode == 0 and all(check["ok"] for check in checks.values()), done.stdout
    assert {"stack", "devices", "models", "configuration", "state"} <= checks.keys() and NAME not in checks["models"]["next"]


def test_doctor_finds_what_is_wrong_and_says_what_to_do(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("orchestratord:\n  quue: {}\n")

    def wrong(*args):
        done = llorch("--json", *NOWHERE, *UP, *args, "doctor", state_dir=tmp_path / "state")
        assert done.returncode == 1
        return {c["check"]: c for c in json.loads(done.stdout)["checks"] if not c["ok"]}

    assert "quue" in wrong("--config", str(file))["configuration"]["finding"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = wrong("--set", "devices.allow_cpu=true", "--set", f"pool-managerd.bind=127.0.0.1:{taken.getsockname()[1]}")
        assert "pool-managerd.bind" in found["ports"]["next"]
    with socket.create_server(("127.0.0.2", 0)) as taken:  # looked for at the address that is configured, and at all of a wildcard
        port = taken.getsockname()[1]
        for host, is_found in (("127.0.0.2", True), ("127.0.0.3", False), ("0.0.0.0", True)):
            done = llorch("--json", *NOWHERE, *UP, "--set", "devices.allow_cpu=true", "--set", f"pool-managerd.bind={host}:{port}", "doctor",
                          state_dir=tmp_path / "state")
            found = {c["check"]: c for c in json.loads(done.stdout)["checks"]}
            assert ("ports" in found) == is_found, (host, done.stdout)
            assert not is_found or f"pool-managerd.bind: {host}:PORT" in found["ports"]["next"]
    (tmp_path / "state").rmdir()
    (tmp_path / "state").write_text("a file")
    assert "--state-dir" in wrong("--set", "devices.allow_cpu=true")["state"]["next"]


def test_top_shows_one_interval_where_no_terminal_is(box, gate):
    gate.hold()
    try:
        job = llorch_background(box, "run", NAME, "Once upon a time", "--max-tokens", "200", "--seed", "7")
        wait_for("the job to run", lambda: [t for t in json.loads(llorch("--json", "ps", state_dir=box).stdout)["tasks"] if t["status"] == "running"])
        gate.let_pass(5)
        shown = json.loads(llorch("--json", "top", "--interval-ms", "100", state_dir=box).stdout)
        assert shown["running"] == 1 and shown["waiting"] == 0 and shown["devices"][0]["total_bytes"] > 0
        (worker,) = [w for w in shown["workers"] if w["jobs"] == 1]
        assert worker["model"] == MODEL.name and shown["jobs"][0]["status"] == "running"
        assert b"1 running, 0 waiting" in llorch("top", "--interval-ms", "100", state_dir=box).stdout
    finally:
        gate.open()
        job.terminate()
        job.wait()
    assert llorch(*NOWHERE, "top", state_dir=box).returncode == 3


def llorch_background(box, *args):
    return subprocess.Popen([str(BIN / "llorch"), "--state-dir", str(box), *args], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=clean_env(box))


def test_model_commands(tmp_path):
    shown = json.loads(llorch("--json", "model", "show", str(MODEL), state_dir=tmp_path).stdout)
    assert shown["architecture"] == "llama" and shown["vocab_size"] == 2048 and shown["memory"]
    assert shown["memory_weight_type"] == "Q8_0"
    ids = json.loads(llorch("--json", "model", "tokenize", str(MODEL), "Once upon a time", state_dir=tmp_path).stdout)
    out = tmp_path / "out.f32"
    done = llorch("model", "logits", str(MODEL), "--tokens", " ".join(map(str, ids["tokens"])), "--out", str(out), state_dir=tmp_path)
    assert done.returncode == 0 and out.stat().st_size == 4 * 2048 * ids["count"]
    for bad in ("1,x", "", "99999999"):
        assert llorch("model", "logits", str(MODEL), "--tokens", bad, "--out", str(tmp_path / "no.f32"), state_dir=tmp_path).returncode in (1, 2)


def test_sigterm_of_a_foreground_up_stops_everything(tmp_path):
    process = subprocess.Popen([str(BIN / "llorch"), "--state-dir", str(tmp_path), *UP, "up", "--cpu", "--model", str(MODEL)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env(tmp_path))
    assert b"orchestratord" in process.stdout.readline()
    pids = [json.loads(p.read_text())["pid"] for p in (tmp_path / "run").glob("*.json")]
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_S) == 0
    assert not [pid for pid in pids if process_runs(pid)]
