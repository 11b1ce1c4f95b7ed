"""Concurrent clients that judge what they read: every stream against the answer of an undisturbed run."""

import collections
import contextlib
import dataclasses
import http.client
import json
import random
import threading
import time
import uuid
import zlib

from stack import EventStream, request
from workload import Answer, outcome_of

JOB_TIMEOUT_S = 240
TERMINAL = ("completed", "failed", "cancelled")
# What a client does after its 202, and how often.
BEHAVIOURS = {"follow": 35, "hop": 20, "late": 10, "two_readers": 5, "absent": 10, "cancel": 10, "vanish": 10}


@dataclasses.dataclass
class Job:
    task_id: str
    number: int  # of its request
    body: dict
    answer: Answer
    behaviour: str
    job_id: str = ""
    may_cancel: bool = False
    cancel_confirmed: bool = False
    terminal: tuple = None  # (name, id, data) as first read

    @property
    def path(self):
        return f"/v2/tasks/{self.job_id}"


class Ledger:
    """What all clients accepted, counted and found wrong. Thread-safe."""

    def __init__(self):
        self.lock = threading.Lock()
        self.jobs = []
        self.counts = collections.Counter()
        self.faults = []
        self.submitting = 0  # submissions sent and not answered

    @contextlib.contextmanager
    def submission(self):
        with self.lock:
            self.submitting += 1
        try:
            yield
        finally:
            with self.lock:
                self.submitting -= 1

    def count(self, what, n=1):
        with self.lock:
            self.counts[what] += n

    def fault(self, text):
        with self.lock:
            self.faults.append(text)

    def accept(self, job):
        with self.lock:
            self.jobs.append(job)
            self.counts["jobs accepted"] += 1


def ask(stack, method, path, body=None):
    """The response, or None when nobody answered."""
    try:
        return request(stack.url, method, path, body)
    except (OSError, http.client.HTTPException):
        return None


class Reader:
    """Reads one job's stream over any number of connections. Every event is compared as it comes."""

    def __init__(self, stack, ledger, weather, job):
        self.stack, self.ledger, self.weather, self.job = stack, ledger, weather, job
        self.next_seq = 0
        self.last_id = None
        self.ended = False
        self.holds_all = False  # and is told nothing more
        self.counts = True

    def fault(self, text):
        self.ledger.fault(f"{self.job.job_id} ({self.job.behaviour}, request {self.job.number}): {text}")

    def read(self, leave_after=None, at_event=None):
        """One connection. "ended", "left" (after `leave_after` events), "broken", "refused", or "gone" (410)."""
        storm = self.weather.state()
        try:
            stream = EventStream(self.stack.url, self.job.path + "/events", self.last_id)
        except (OSError, http.client.HTTPException):
            return "refused"
        self.ledger.count("connections")
        try:
            if stream.status == 410:
                return "gone"
            if stream.status == 204 and self.holds_all:
                return "ended"
            if stream.status != 200:
                if stream.status != 503:
                    self.fault(f"events answered {stream.status}: {stream.response.read()[:300]}")
                return "refused"
            for n, event in enumerate((e for e in stream if e.id or e.name == "error"), 1):
                self.take(event)
                if at_event and n == at_event[0]:
                    at_event[1]()
                if not self.ended and n == leave_after:
                    return "left"
        finally:
            stream.close()
        if not self.ended and not self.holds_all and not self.weather.excuses(storm):
            self.fault("a stream broke off though orchestratord lived")
        return "ended" if self.ended else "broken"

    def take(self, event):
        if self.ended or self.holds_all:
            return self.fault(f"an event after the terminal one: {event}")
        if event.name in ("end", "error"):
            return self.take_terminal(event)
        seq = int(event.id.split("-")[0])
        if seq != self.next_seq:
            self.fault(f"event {event.id} where number {self.next_seq} was due")
        expected = {0: "queued", 1: "started"}.get(seq, "token")
        if event.name != expected:
            self.fault(f"event {event.id} is {event.name}, not {expected}")
        if seq >= 2:
            tokens = self.job.answer.tokens
            if seq - 2 >= len(tokens) or (event.id, event.data) != tokens[seq - 2]:
                self.fault(f"differs from the undisturbed run: {event}")
            self.ledger.count("token events compared")
        self.next_seq = seq + 1
        self.last_id = event.id

    def take_terminal(self, event):
        self.ended = True
        self.ledger.count("terminal events read")
        job, seen = self.job, (event.name, event.id, event.data)
        with self.ledger.lock:
            first = job.terminal = job.terminal or seen
        if first != seen:
            self.fault(f"two different terminal events: {first} and {seen}")
        if event.name == "error":
            if not job.may_cancel or event.data["code"] != "CANCELLED" or not event.id:
                self.fault(f"ended with {event}")
            return
        if job.cancel_confirmed:
            self.fault("completed after its cancellation was confirmed")
        if event.id != job.answer.end_id or outcome_of(event.data) != job.answer.outcome:
            self.fault(f"another outcome than the undisturbed run's: {event}")
        if not self.counts:
            return
        if self.next_seq == 0:  # first asked when orchestratord held nothing but the ending any more
            self.ledger.count("streams of which only the ending was left")
        elif self.next_seq != 2 + len(job.answer.tokens):
            self.fault(f"a gap before the end: {self.next_seq} events, then {event.id}")
        else:
            self.ledger.count("streams read whole")


class Client(threading.Thread):
    """Submits one job after the other until told to stop; finishes the one it has."""

    def __init__(self, stack, ledger, weather, workload, seed):
        super().__init__(daemon=True)
        self.stack, self.ledger, self.weather = stack, ledger, weather
        self.workload = workload  # (bodies, answers)
        self.rng = random.Random(seed)
        self.stopping = threading.Event()

    def run(self):
        while not self.stopping.is_set():
            try:
                self.one_job()
            except Exception as error:  # a bug of the harness must not look like a quiet run
                self.ledger.fault(f"client: {error!r}")
                return

    def one_job(self):
        bodies, answers = self.workload
        number = self.rng.randrange(len(bodies))
        behaviour = self.rng.choices(list(BEHAVIOURS), list(BEHAVIOURS.values()))[0]
        task_id = f"task-{self.rng.randrange(2**60):x}"
        if self.rng.random() < 0.5:  # which is the job's id as well then
            task_id = str(uuid.UUID(int=self.rng.randrange(2**128), version=4))
        job = Job(task_id, number, bodies[number], answers[number], behaviour, may_cancel=behaviour in ("cancel", "vanish"))
        self.submit(job)
        getattr(self, behaviour)(job)
        self.ledger.count(f"behaviour: {behaviour}")

    def body_of(self, job):
        return {
            **job.body,
            "task_id": job.task_id,
            "priority": "batch" if zlib.crc32(job.task_id.encode()) % 3 == 0 else "interactive",
            "on_disconnect": "cancel" if job.behaviour == "vanish" else "resume",
        }

    def submit(self, job):
        """Until there is a 202; the same task_id every time."""
        body = self.body_of(job)
        deadline = time.monotonic() + JOB_TIMEOUT_S
        repeat = self.rng.random() < 0.1
        while time.monotonic() < deadline:
            if self.rng.random() < 0.05:
                self.post_and_hang_up(body)
            storm = self.weather.state()
            try:
                with self.ledger.submission():
                    reply = request(self.stack.url, "POST", "/v2/tasks", body)
            except (OSError, http.client.HTTPException) as error:
                if not isinstance(error, ConnectionRefusedError):
                    self.ledger.count("submissions that nobody answered")
                if not self.weather.excuses(storm):
                    self.ledger.fault(f"{job.task_id}: a submission was not answered though orchestratord lived")
                time.sleep(0.01)
                continue
            if reply.status != 202:
                self.ledger.count(f"refused {reply.status} {reply.code}")
                if reply.status not in (429, 503):
                    return self.ledger.fault(f"{job.task_id}: refused: {reply.body[:300]}")
                time.sleep(0.05)
            elif job.job_id and job.job_id != reply.json["job_id"]:
                return self.ledger.fault(f"{job.task_id} is {job.job_id} and then {reply.json['job_id']}")
            else:
                if not job.job_id:
                    job.job_id = reply.json["job_id"]
                    self.ledger.accept(job)
                if not repeat:
                    return None
                repeat = False
                self.ledger.count("submissions repeated after their 202")
        return self.ledger.fault(f"{job.task_id}: no 202 in {JOB_TIMEOUT_S} s")

    def post_and_hang_up(self, body):
        try:
            connection = http.client.HTTPConnection(*self.stack.bind.split(":"), timeout=5)
            connection.request("POST", "/v2/tasks", body=json.dumps(body), headers={"Content-Type": "application/json"})
            connection.close()
            self.ledger.count("submissions given up before their answer")
        except (OSError, http.client.HTTPException):
            pass

    def reader(self, job):
        return Reader(self.stack, self.ledger, self.weather, job)

    def read_to_end(self, job, reader=None, leave=lambda: None):
        reader = reader or self.reader(job)
        deadline = time.monotonic() + JOB_TIMEOUT_S
        connections = 0
        while time.monotonic() < deadline:
            result = reader.read(leave_after=leave())
            connections += result in ("left", "broken", "ended")
            if result == "ended":
                self.ledger.count("streams reconnected", connections > 1)
                return self.after_the_end(job, reader)
            if result == "gone":
                return self.submit_again(job, reader)
            time.sleep(self.rng.uniform(0, 0.05))
        return self.ledger.fault(f"{job.job_id}: no terminal event in {JOB_TIMEOUT_S} s after {reader.next_seq} events")

    def after_the_end(self, job, reader):
        """A client that holds the terminal event is told nothing more; one that holds nothing is told the same."""
        if self.rng.random() > 0.2 or job.terminal is None:
            return
        again = self.reader(job)
        again.last_id = job.terminal[1]
        again.holds_all = True
        again.read()
        once_more = self.reader(job)
        once_more.counts = False
        once_more.read()
        self.ledger.count("ended streams asked for again")

    def submit_again(self, job, reader):
        """410: orchestratord died between the job's end and the last read, and tokens are never stored. What it says
        to do is followed: the same request and seed again. The reader checks that it is the same stream."""
        self.ledger.count("streams gone (410) and submitted again")
        view = self.view(job)
        excused = job.behaviour == "two_readers"  # the other one has read it to its end, and the buffer went
        if view["status"] not in TERMINAL or not (excused or self.weather.died_after(view["finished_at"])):
            reader.fault(f"410 without a death after its end: {view}")
        again = Job(job.task_id + "-again", job.number, job.body, job.answer, job.behaviour)
        self.submit(again)
        self.read_to_end(again)

    def view(self, job):
        while True:
            reply = ask(self.stack, "GET", job.path)
            if reply is not None and reply.status == 200:
                return reply.json
            if reply is not None and reply.status != 503:
                self.ledger.fault(f"{job.job_id}: asked for, it is {reply.status} {reply.body[:200]}")
                return {"status": "lost", "finished_at": "1970-01-01T00:00:00.000Z"}
            time.sleep(0.02)

    def wait_ended(self, job):
        deadline = time.monotonic() + JOB_TIMEOUT_S
        while time.monotonic() < deadline:
            if (view := self.view(job))["status"] in (*TERMINAL, "lost"):
                return view
            time.sleep(0.05)
        return self.ledger.fault(f"{job.job_id}: not ended after {JOB_TIMEOUT_S} s: {self.view(job)}")

    # Behaviours.
    def follow(self, job):
        self.read_to_end(job)

    def hop(self, job):
        self.read_to_end(job, leave=lambda: self.rng.randint(1, 30))

    def late(self, job):
        time.sleep(self.rng.uniform(0, 0.4))
        self.read_to_end(job)

    def two_readers(self, job):
        other = threading.Thread(target=self.read_to_end, args=(job,), daemon=True)
        other.start()
        self.read_to_end(job)
        other.join()

    def absent(self, job):
        self.wait_ended(job)

    def vanish(self, job):
        self.reader(job).read(leave_after=self.rng.randint(1, 30))
        self.wait_ended(job)

    def cancel(self, job):
        def delete():
            while (reply := ask(self.stack, "DELETE", job.path)) is None or reply.status == 503:
                time.sleep(0.01)
            if reply.status not in (200, 202):
                self.ledger.fault(f"{job.job_id}: cancel answered {reply.status} {reply.body[:200]}")
            job.cancel_confirmed = reply.json["status"] == "cancelled"
            self.ledger.count(f"cancel answered {reply.json['status']}")

        reader = self.reader(job)
        if reader.read(at_event=(self.rng.randint(1, 40), delete)) == "ended":
            return None
        return self.read_to_end(job, reader)
