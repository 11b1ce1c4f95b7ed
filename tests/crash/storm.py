#!/usr/bin/python3
"""One run: load, kills, and what became of every job. As a program it prints a report and keeps the counts.

storm.py --orchestrator N --worker N --pool N --seed N [--clients N] [--keep FILE] [--state EMPTY_DIRECTORY, which stays]
"""

import argparse
import collections
import datetime
import json
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import dispatch_order  # noqa: E402
import leftovers  # noqa: E402
import workload  # noqa: E402
from clients import TERMINAL, Client, Ledger  # noqa: E402
from killer import HarnessRestarts, Killer, Weather, quiet_ports  # noqa: E402
from stack import REPO, Stack, wait_for  # noqa: E402

RESTART_BAR_S = 2.0
FAULTS_SHOWN = 20


def receipt_of(row, event):
    """The receipt of a row of job_records, whole."""
    return json.loads(row["receipt"]) | {
        "seed": row["receipt_seed"] % 2**64,
        "prompt_sha256": row["receipt_prompt_hash"],
        "output_sha256": row["output_hash"],
        "tokens_out": event["tokens_out"],
    }


class Storm:
    """A stack under load with its clients. Use: with Storm(...) as storm: storm.kill(...); storm.drain(); storm.judge()."""

    def __init__(self, stack, answers, seed, clients=10, restarts=None):
        self.stack, self.seed = stack, seed
        self.bodies, self.answers = answers
        self.ledger = Ledger()
        self.weather = Weather()
        self.clients = [Client(stack, self.ledger, self.weather, answers, f"{seed}-{n}") for n in range(clients)]
        self.killer = Killer(stack, restarts or HarnessRestarts(stack), self.weather, self.ledger, random.Random(f"{seed}-kills"))

    def start_load(self):
        for client in self.clients:
            client.start()
        wait_for("the first jobs", lambda: self.ledger.counts["terminal events read"] > len(self.clients))

    def kill(self, orchestrator, worker, pool, progress=lambda done: None):
        kills = ["o"] * orchestrator + ["w"] * worker + ["p"] * pool
        random.Random(f"{self.seed}-order").shuffle(kills)
        self.killer.run(kills, progress)

    def drain(self):
        """Until every client has what it asked for."""
        for client in self.clients:
            client.stopping.set()
        for client in self.clients:
            client.join(300)
            if client.is_alive():
                self.ledger.fault("a client never finished")

    def judge(self, state_dir, log=None):
        """After the stack has stopped: the rows, the order of dispatch, and what is left on disk."""
        rows = dispatch_order.rows_of(state_dir / "orchestrator.db")
        for job in self.ledger.jobs:
            self.judge_row(job, rows.get(job.job_id))
        known = {job.job_id for job in self.ledger.jobs}
        for stranger in rows.keys() - known:
            self.ledger.fault(f"{stranger} is stored though nobody was told of it")
        dispatches, faults = dispatch_order.check(log or state_dir / "orchestratord.log", rows)
        self.ledger.count("dispatches checked for order", dispatches)
        self.ledger.faults += faults
        self.ledger.count("jobs run more than once", sum(row["attempts"] > 1 for row in rows.values()))

    def judge_row(self, job, row):
        fault = self.ledger.fault
        if row is None:
            return fault(f"{job.job_id} was accepted and is lost")
        self.ledger.count(f"stored as {row['status']}")
        if row["status"] not in TERMINAL:
            return fault(f"{job.job_id} has not ended: {row}")
        stored = json.loads(row["terminal_event"])
        if row["receipt"] is not None:
            stored |= {"job_id": row["job_id"], "receipt": receipt_of(row, stored)}
        if job.terminal and job.terminal[1:] != (row["last_event_id"], stored):
            fault(f"{job.job_id}: told {job.terminal}, stored {row['last_event_id']} {stored}")
        if row["status"] == "completed":
            if row["last_event_id"] != job.answer.end_id or workload.outcome_of(stored) != job.answer.outcome:
                fault(f"{job.job_id} ({job.behaviour}, request {job.number}): stored with another outcome: {stored}")
        elif row["status"] != "cancelled" or not job.may_cancel:
            fault(f"{job.job_id} ({job.behaviour}) ended {row['status']}: {row['terminal_event']}")

    def look_for_leftovers(self, state_dir):
        """Every distinct prompt's needle and every answer's text, in every file."""
        secrets = []
        for body, answer in zip(self.bodies, self.answers):
            needle = next(word for word in body["prompt"].split() if word.startswith("zq"))
            secrets += leftovers.text_forms(needle)
            secrets += [form for piece in leftovers.pieces(answer.text) for form in leftovers.text_forms(piece)]
        found = leftovers.search([state_dir], secrets)
        self.ledger.count("spellings of secrets looked for", len(secrets))
        for path, form in found:
            self.ledger.fault(f"{path} holds {form!r}")


def percentile(values, p):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))] if ordered else 0.0


def distribution(values):
    marks = {f"p{p}": round(percentile(values, p) * 1000) for p in (50, 90, 99)}
    return {"count": len(values), **marks, "max": round(max(values, default=0) * 1000)}


def run(seed, orchestrator, worker, pool, clients=10, requests=24, state_dir=None, progress=lambda storm, done: None, until=()):
    """The judged storm. `progress` is called after every kill. The load goes on until what `until` names was counted."""
    bodies = workload.requests(random.Random(f"{seed}-requests"), requests)
    answers = (bodies, workload.reference(bodies))
    stack = Stack(settings=workload.SETTINGS, state_dir=state_dir)
    stack.bind, stack.pool_bind = (f"127.0.0.1:{port}" for port in quiet_ports(2))
    with stack:
        storm = Storm(stack, answers, seed, clients)
        storm.start_load()
        storm.kill(orchestrator, worker, pool, lambda done: progress(storm, done))
        wait_for("the load to show everything", lambda: all(storm.ledger.counts[what] for what in until))
        storm.drain()
        storm.look_for_leftovers(stack.dir)
        stack.stop_daemons()
        storm.judge(stack.dir)
        storm.look_for_leftovers(stack.dir)
        # A daemon that runs has keys for jobs to come; test_needles shows that they open nothing.
        if (stack.dir / "payload.keys").read_bytes().strip(b"\0"):
            storm.ledger.fault("payload.keys still holds a key")
    return storm


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orchestrator", type=int, default=25)
    parser.add_argument("--worker", type=int, default=25)
    parser.add_argument("--pool", type=int, default=2)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    parser.add_argument("--keep", type=pathlib.Path, default=REPO / "build/crash/runs.tsv")
    parser.add_argument("--state", type=pathlib.Path)
    options = parser.parse_args()
    print("seed", options.seed, flush=True)
    begun = time.monotonic()

    def progress(storm, done):
        if done % 100 == 0:
            print(f"{done} kills, {time.monotonic() - begun:.0f} s, {storm.ledger.counts['jobs accepted']} jobs, "
                  f"{len(storm.ledger.faults)} faults", flush=True)
            for fault in storm.ledger.faults[:3]:
                print("  FAULT", fault, flush=True)

    storm = run(options.seed, options.orchestrator, options.worker, options.pool, options.clients, state_dir=options.state,
                progress=progress)
    ledger = storm.ledger
    for what, count in sorted(ledger.counts.items()):
        print(f"{count:>10}  {what}")
    health, query = distribution(storm.killer.health_s), distribution(storm.killer.query_s)
    print("ms from start to /v2/health:", health)
    print("ms from start to a job query:", query)
    for fault in ledger.faults[:FAULTS_SHOWN]:
        print("FAULT", fault)
    slow = query["p99"] > RESTART_BAR_S * 1000
    if slow:
        print(f"FAULT p99 of a restart is over {RESTART_BAR_S} s")
    keep(options.keep, options.seed, storm, time.monotonic() - begun, query)
    print(f"{len(ledger.faults)} faults in {time.monotonic() - begun:.0f} s")
    return 1 if ledger.faults or slow else 0


def keep(path, seed, storm, seconds, query):
    """Every run's counts are kept: the bar is a number of kills over all of them."""
    counts = collections.Counter(storm.ledger.counts)
    path.parent.mkdir(parents=True, exist_ok=True)
    row = [datetime.datetime.now(datetime.timezone.utc).strftime("%FT%TZ"), f"seed={seed}", f"seconds={seconds:.0f}"]
    row += [f"{name}={counts['SIGKILL ' + name]}" for name in ("orchestratord", "worker-orcd", "pool-managerd")]
    row += [f"jobs={counts['jobs accepted']}", f"streams={counts['streams read whole']}", f"faults={len(storm.ledger.faults)}"]
    row += [f"restart_ms_{mark}={value}" for mark, value in query.items() if mark != "count"]
    with open(path, "a") as out:
        out.write("\t".join(row) + "\n")


if __name__ == "__main__":
    sys.exit(main())
