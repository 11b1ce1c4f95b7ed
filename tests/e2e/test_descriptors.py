"""How many descriptors the daemons may have, whatever their shell says."""

import pathlib
import resource

from stack import Stack


def descriptors(pid):
    line = next(line for line in pathlib.Path(f"/proc/{pid}/limits").read_text().splitlines() if line.startswith("Max open files"))
    soft, hard = line.split()[3:5]
    return soft, hard


def test_a_daemon_takes_what_it_may(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    try:
        with Stack(state_dir=tmp_path) as own:
            own.read_to_end(own.submit(max_tokens=1)["job_id"])
            for pid in (own.orchestrator.pid, own.pool.pid, own.ready_worker()["pid"]):
                assert descriptors(pid) == (str(before[1]), str(before[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
