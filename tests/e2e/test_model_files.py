"""Model files that others cut, rewrite, replace and remove while they are described, hashed and loaded.

LLORCH_MODEL_FILE_ROUNDS is the number of rounds (30; the nightly run has 1,000).
"""

import hashlib
import os
import random
import signal
import struct
import subprocess
import threading


from long_model import ARRAY, STRING, gguf_string, metadata_of
from stack import BIN, HANG_S, MODEL, MODEL_F16, Stack, clean_env, request

ROUNDS = int(os.environ.get("LLORCH_MODEL_FILE_ROUNDS", "30"))
TAIL = bytes(range(256)) * 4


def with_long_header(path, entries=300_000):
    """The model with so many strings in its metadata that reading them takes long enough to be met in the middle."""
    data = path.read_bytes()
    count = struct.unpack_from("<Q", data, 16)[0]
    end = 24 + sum(len(gguf_string(key)) + len(raw) for key, raw in metadata_of(data))
    alignment = 32
    tensors_end = end + tensor_table_bytes(data, end)
    body = data[-(-tensors_end // alignment) * alignment:]
    strings = b"".join(gguf_string(b"padding %08d" % i) for i in range(entries))
    entry = gguf_string(b"test.padding") + struct.pack("<IIQ", ARRAY, STRING, entries) + strings
    head = data[:16] + struct.pack("<Q", count + 1) + data[24:end] + entry + data[end:tensors_end]
    return head + b"\0" * (-len(head) % alignment) + body


def tensor_table_bytes(data, start):
    at = start
    for _ in range(struct.unpack_from("<Q", data, 8)[0]):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 12
    return at - start


class Vandal(threading.Thread):
    """Never leaves a model alone, until told to. Every whole state is one of `states` or one with TAIL behind it; what is
    between two of them is no model, so that an answer about it is a mixture."""

    def __init__(self, path, states, seed):
        super().__init__(daemon=True)
        self.path = path
        self.states = states
        self.random = random.Random(seed)
        self.ended = threading.Event()
        self.deeds = 0

    def run(self):
        deeds = (self.cut, self.cut, self.rewrite, self.rewrite, self.replace, self.grow, self.huge, self.fifo, self.loop,
                 self.directory, self.remove, self.forbid, self.hole)
        while not self.ended.is_set():
            self.random.choice(deeds)()
            self.deeds += 1
            self.pause()
            self.replace()
            self.pause(self.random.choice([0.02, 0.2, 2]))  # also long enough for who must wait until the file is left alone

    def pause(self, longest_s=0.05):
        self.ended.wait(self.random.random() * longest_s)

    def whole(self):
        """Opened for writing, the file as it was before the last deed."""
        if not self.path.is_file() or self.path.is_symlink():
            self.replace()
        return open(self.path, "r+b")

    def cut(self):
        with self.whole() as file:
            size = os.fstat(file.fileno()).st_size
            file.truncate(self.random.choice([0, 3, 24, size // 1000, self.random.randrange(size + 1) // 2]))

    def rewrite(self):
        data = self.random.choice(self.states)
        with self.whole() as file:
            file.write(b"....")
            file.flush()
            file.truncate(max(4, os.fstat(file.fileno()).st_size // 2))
            file.write(data[4:])
            file.truncate(len(data))
            file.flush()
            file.seek(0)
            file.write(data[:4])

    def beside(self):
        return self.path.with_name("beside")

    def put(self):
        if self.path.is_dir():
            self.path.rmdir()
        os.replace(self.beside(), self.path)

    def replace(self):
        self.beside().write_bytes(self.random.choice(self.states))
        self.put()

    def grow(self):
        self.replace()
        with open(self.path, "ab") as file:
            file.write(TAIL)

    def huge(self):
        """Counts, lengths and sizes of 2^60."""
        state = self.random.choice(self.states)
        at = self.random.choice([8, 16, 24, 24 + 8 + 24])
        self.beside().write_bytes(state[:at] + struct.pack("<Q", 1 << 60) + state[at + 8:])
        self.put()

    def hole(self):
        """As large as no disk, and none of it there."""
        self.beside().write_bytes(b"....")
        os.truncate(self.beside(), 1 << 43)
        self.put()

    def fifo(self):
        os.mkfifo(self.beside())
        self.put()

    def loop(self):
        os.symlink(self.path.name, self.beside())
        self.put()

    def directory(self):
        if not self.path.is_dir():
            self.path.unlink(missing_ok=True)
            self.path.mkdir()

    def remove(self):
        if not self.path.is_dir():
            self.path.unlink(missing_ok=True)

    def forbid(self):
        self.replace()
        os.chmod(self.path, 0)

    def stop(self):
        self.ended.set()
        self.join()
        self.beside().write_bytes(self.states[0])
        self.put()


def load(model, state):
    """One worker of the model: what it said when it ended by itself, or None if it served (and was ended here)."""
    worker = subprocess.Popen(
        [str(BIN / "worker-orcd"), "--model", str(model), "--gpu-device", "cpu", "--threads", "1", "--context", "64",
         "--self-test-dir", str(state)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env(state))
    hangs = threading.Timer(HANG_S, worker.kill)
    hangs.start()
    try:
        if worker.stdout.readline():
            return None
        said = worker.stderr.read().decode(errors="replace")
        assert worker.wait() > 0, f"ended by signal {signal.Signals(-worker.returncode).name}: {said[-2000:]}"
        return said
    finally:
        hangs.cancel()
        worker.kill()
        worker.communicate()


REFUSALS = {"CONFLICT", "MODEL_NOT_FOUND", "MODEL_INCOMPATIBLE", "IO_ERROR"}


def test_nobody_dies_of_a_file_that_changes_while_it_is_read(tmp_path):
    """A pool goes on with all its workers, a worker ends with a reason, and every answer is of one state."""
    model = tmp_path / "models/m.gguf"
    model.parent.mkdir()
    states = [with_long_header(MODEL), with_long_header(MODEL_F16)]
    model.write_bytes(states[0])
    facts_of = {}
    for data, quant in zip(states, ("Q8_0", "F16")):
        for whole in (data, data + TAIL):
            facts_of["sha256:" + hashlib.sha256(whole).hexdigest()] = (len(whole), quant)
    settings = {"models.allowed_roots": f"{MODEL.parent},{model.parent}"}
    with Stack(settings) as stack:
        stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])
        bystander = stack.ready_worker()["pid"]

        def describe():
            return request(stack.pool_url, path=f"/v2/models/describe?ref=file:{model}", timeout_s=HANG_S)

        vandal = Vandal(model, states, seed=15)
        failures, loads, enough = [], [], threading.Event()

        def load_in_a_loop():
            try:
                while (len(loads) < ROUNDS or not any(loads)) and not enough.is_set():
                    loads.append(load(model, tmp_path))
            except BaseException as failure:  # noqa: BLE001 - for the main thread to raise
                failures.append(failure)

        loader = threading.Thread(target=load_in_a_loop, daemon=True)
        vandal.start()
        loader.start()
        codes, answers = {}, 0
        try:
            while not failures and (answers + sum(codes.values()) < ROUNDS or not codes or loader.is_alive()):
                answer = describe()
                assert stack.pool.poll() is None, f"pool-managerd ended: {stack.pool.returncode}"
                if answer.status != 200:
                    assert answer.code in REFUSALS, answer.body
                    codes[answer.code] = codes.get(answer.code, 0) + 1
                    continue
                answers += 1
                facts = answer.json
                assert (facts["size_bytes"], facts["quant_kind"]) == facts_of[facts["digest"]]
                tokenizer = request(stack.pool_url, path=f"/v2/models/{facts['digest']}/tokenizer")
                assert tokenizer.status == 200 or tokenizer.code in REFUSALS, tokenizer.body
        finally:
            enough.set()
            loader.join()
            vandal.stop()
        if failures:
            raise failures[0]
        said = [text for text in loads if text is not None]
        print(f"{len(loads)} loads, {len(said)} refused; {answers} described, refused {codes}; {vandal.deeds} deeds")
        assert all("m.gguf" in text for text in said), said
        assert said and codes
        last = describe()
        assert last.status == 200 and (last.json["size_bytes"], last.json["quant_kind"]) == (len(states[0]), "Q8_0")
        assert load(model, tmp_path) is None
        assert stack.ready_worker()["pid"] == bystander
