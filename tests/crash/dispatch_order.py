"""Order by (class, arrival), read from what orchestratord logged and from the stored rows.

Checked at every `dispatch.sent` line: no job of the same process that waited and could have gone came before it, interactive
before batch, by `arrival` (the order of admission, a column of the job's row) within a class. A job waits

- from its `admission.accepted` line, or from the start of a process when its row is older and had not ended,
- until it is dispatched, cancelled, or ended;
- after `job.retry` it keeps its place but may be passed until its backoff is over (and `SLACK_MS`, because a line is
  stamped when it is written, not when it was decided).

All jobs use one model, so nothing but the order of the queue decides. Lines torn by a SIGKILL are skipped. Where orchestratord left lines
out that are read here, the order is unknown, and that is a fault.
"""

import datetime
import json
import sqlite3

SLACK_MS = 250
RANK = {"interactive": 0, "batch": 1}
ENDS = ("job.cancelled", "job.failed", "job.timeout", "stream.ended")
READ = ("startup", "dispatch.sent", "admission.accepted", "job.retry", *ENDS)


def unix_ms(rfc3339):
    return datetime.datetime.fromisoformat(rfc3339.replace("Z", "+00:00")).timestamp() * 1000


def rows_of(database):
    """job_id -> row, of a database nobody has open."""
    connection = sqlite3.connect(database)
    connection.row_factory = sqlite3.Row
    try:
        return {row["job_id"]: dict(row) for row in connection.execute("SELECT * FROM job_records")}
    finally:
        connection.close()


def lines_of(log):
    for raw in log.read_bytes().split(b"\n"):
        at = raw.rfind(b'{"v":')  # a torn line has the next process's first one behind it
        try:
            yield json.loads(raw[at:]) if at >= 0 else {}
        except ValueError:
            continue


class Checker:
    def __init__(self, rows):
        self.rows = rows
        self.waiting = {}  # job_id -> (key, Unix ms from which it may not be passed)
        self.dispatches = 0
        self.faults = []

    def key(self, job_id):
        row = self.rows[job_id]
        return RANK[row["priority"]], row["arrival"]

    def start(self, now_ms):
        self.waiting = {
            job_id: (self.key(job_id), now_ms)
            for job_id, row in self.rows.items()
            if row["created_at"] < now_ms and (row["completed_at"] is None or row["completed_at"] >= now_ms)
        }

    def take(self, line):
        event, job_id = line.get("event"), line.get("job_id")
        if event in READ and line.get("left_out_before"):
            self.faults.append(f"{line['left_out_before']} lines of {event} were left out before {line['ts']}")
        if event == "startup":
            return self.start(unix_ms(line["ts"]))
        if event == "dispatch.sent":
            return self.dispatched(job_id, unix_ms(line["ts"]))
        if event == "admission.accepted":
            self.waiting[job_id] = (self.key(job_id), 0)
        elif event == "job.retry":
            self.waiting[job_id] = (self.key(job_id), unix_ms(line["ts"]) + line["backoff_ms"] + SLACK_MS)
        elif event in ENDS:
            self.waiting.pop(job_id, None)
        return None

    def dispatched(self, job_id, now_ms):
        self.dispatches += 1
        self.waiting.pop(job_id, None)
        key = self.key(job_id)
        passed = [other for other, (k, due_ms) in self.waiting.items() if k < key and due_ms <= now_ms]
        if passed:
            self.faults.append(f"{job_id} {key} was dispatched before {[(p, self.key(p)) for p in passed[:3]]}")


def check(log, rows):
    """(dispatches checked, faults)"""
    checker = Checker(rows)
    for line in lines_of(log):
        checker.take(line)
    return checker.dispatches, checker.faults
