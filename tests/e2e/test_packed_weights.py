"""A worker keeps its weights as the CPU device packs them; the next one of the model reads them. Neither changes a byte."""

import json
import os
import signal

from stack import MODEL_F16, ResumingClient, Stack, request, wait_for


def said(stack, event):
    """The events of this name in the logs of all workers, the earlier worker's first."""
    lines = [line for log in sorted((stack.dir / "logs").glob("worker-*.log"), key=lambda path: path.stat().st_ctime) for line in log.read_text().splitlines()]
    found = [json.loads(line) for line in lines if line.startswith("{") and f'"{event}"' in line]
    return [entry for entry in found if entry["event"] == event]


def run(stack):
    client = ResumingClient(stack, stack.submit(model="demo-f16", max_tokens=12, temperature=0.8, seed=5)["job_id"]).run()
    return client.terminal().data["receipt"]["output_sha256"], tuple(client.tokens())


def next_worker(stack):
    os.kill(stack.ready_worker()["pid"], signal.SIGKILL)
    wait_for("the worker to be gone", lambda: not stack.workers())


def test_the_second_start_reads_what_the_first_one_packed():
    with Stack() as stack:
        packed = run(stack)
        kept = wait_for("the weights to be kept", lambda: said(stack, "packed_weights_kept"))
        files = list((stack.dir / "repacked").glob("*.packed"))
        assert [path.stat().st_size for path in files] == [kept[0]["bytes"]]
        assert (stack.dir / "repacked").stat().st_mode & 0o777 == 0o700
        next_worker(stack)
        assert run(stack) == packed
        assert [load["weights_were_kept"] for load in said(stack, "model_load_complete")] == [False, True]

        # Damaged, they are packed again, and kept again.
        with open(files[0], "r+b") as file:
            file.seek(-100, os.SEEK_END)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        next_worker(stack)
        assert run(stack) == packed
        load = said(stack, "model_load_complete")[-1]
        assert not load["weights_were_kept"] and "checksum" in load["weights_not_kept_why"]
        wait_for("the weights to be kept again", lambda: len(said(stack, "packed_weights_kept")) == 2)


# POOL-2030: what is held in memory is what the next start reads. When a worker has packed the weights, that is the packed ones.
def test_a_staged_model_is_what_its_next_start_reads():
    with Stack(settings={"pool-managerd.staging_bytes_max": str(64 << 20)}) as stack:

        def held():
            return [model["bytes"] for model in request(stack.pool_url, path="/v2/state").json["staged_models"]]

        size = MODEL_F16.stat().st_size
        assert request(stack.pool_url, "POST", "/v2/models/staged", {"model_ref": f"file:{MODEL_F16}"}).status == 202
        wait_for("the model's file to be held", lambda: held() == [size])
        run(stack)
        kept = wait_for("the weights to be kept", lambda: said(stack, "packed_weights_kept"))[0]["bytes"]
        next_worker(stack)
        # The file's begin has the tokenizer; of a file this small it is all.
        wait_for("the packed weights to be held", lambda: held() == [kept + size])
        run(stack)
        assert said(stack, "model_load_complete")[-1]["weights_were_kept"]


def test_where_they_cannot_be_kept_the_worker_serves_and_says_so(tmp_path):
    nowhere = tmp_path / "file"
    nowhere.write_text("no directory")
    with Stack(settings={"models.repacked_dir": str(nowhere)}) as stack:
        run(stack)
        told = wait_for("a word about it", lambda: said(stack, "packed_weights_not_kept"))
        assert told[0]["code"] == "IO_ERROR" and told[0]["level"] == "warn"


def test_without_a_budget_nothing_is_kept():
    with Stack(settings={"models.repacked_bytes_max": "0"}) as stack:
        run(stack)
        assert said(stack, "model_load_complete")[0]["weights_not_kept_why"] == "no packed weights are kept"
        assert not (stack.dir / "repacked").exists()
