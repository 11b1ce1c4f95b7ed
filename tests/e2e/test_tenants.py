"""Tenants: tokens of their own, jobs at a time, tokens a day; and the pressure on a worker's cache as a metric."""

import re

from stack import OFTEN_HEARD, Stack, llorch, wait_for


def secret(directory, name, character):
    path = directory / name
    path.write_text(character * 32 + "\n")
    path.chmod(0o600)
    return path


def bearer(character):
    return {"Authorization": f"Bearer {character * 32}"}


def test_tenants_are_bounded_by_their_configuration(tmp_path):
    """SYS-9.3.2: from the configuration file on: a tenant's token, its jobs at a time, its tokens a day, kept over a crash."""
    secret(tmp_path, "a", "a")
    config = tmp_path / "config.yaml"
    config.write_text(f"orchestratord:\n  tenants:\n    - id: small\n      token_file: {tmp_path / 'a'}\n"
                      "      quotas: {max_concurrent_jobs: 1, token_budget_daily: 400}\n")
    config.chmod(0o600)
    with Stack(token="o" * 32, env={"LLORCH_CONFIG": str(config)},
               settings={"orchestratord.worker_slots": "4"}) as stack:
        def submit(who, max_tokens):
            body = {"model": "demo", "prompt": "Once upon a time", "max_tokens": max_tokens, "seed": 7}
            return stack.request("POST", "/v2/tasks", body, headers=bearer(who))

        stack.gate.hold()
        first, second = submit("a", 150), submit("a", 20)
        assert first.status == second.status == 202
        first, second = first.json["job_id"], second.json["job_id"]
        wait_for("the quota to hold the second job", lambda: (stack.job(second).get("reason") or {}).get("code")
                 == "WAITING_FOR_QUOTA")
        refused = submit("a", 300)
        assert refused.status == 429 and refused.code == "QUOTA_EXCEEDED" and int(refused.headers["retry-after"]) >= 1
        assert submit("x", 1).status == 401
        listed = llorch("--url", stack.url, "ls", state_dir=stack.dir, env={"LLORCH_API_TOKEN": "a" * 32})
        assert listed.returncode == 0 and b" -  " in listed.stdout and b"no worker" not in listed.stdout, listed
        other = submit("o", 10)
        assert other.status == 202
        stack.wait_running(other.json["job_id"])
        stack.gate.let_pass(12)  # its ten tokens, and what the first job may take before it
        stack.wait_terminal(other.json["job_id"])
        assert stack.job(second)["status"] == "queued"  # the operator's job has overtaken it
        stack.gate.open()
        for job in (first, second):
            assert stack.wait_terminal(job)["status"] == "completed"
        used = sum(job["tokens_in"] + job["tokens_out"] for job in map(stack.job, (first, second)))
        stack.orchestrator.kill()
        stack.orchestrator.wait()
        stack.start_orchestrator()
        refused = submit("a", 390)
        assert refused.status == 429 and refused.json["error"]["details"]["tokens_used_today"] == used


def test_the_pressure_on_the_cache_is_a_metric():
    """ORCH-3022: the cache of a worker is bounded, and how much of it running jobs hold is kv_cache_usage_ratio."""
    settings = {**OFTEN_HEARD, "pool-managerd.worker_health_interval_ms": "1000",
                "orchestratord.worker_context_tokens": "512"}
    with Stack(settings=settings) as stack:
        def ratio():
            text = stack.request("GET", "/metrics").body.decode()
            found = re.findall(r'^kv_cache_usage_ratio\{([^}]*)\} (\S+)$', text, re.M)
            return found[0] if found else ("", "-1")

        job = stack.submit_held(max_tokens=300)
        labels, value = wait_for("the cache to be used", lambda: (told := ratio()) and float(told[1]) > 0 and told)
        assert 0 < float(value) <= 1
        worker = stack.ready_worker()
        for label in ('engine="llama-orch"', f'engine_version="{worker["engine_build"]}"', 'pool_id="pool-1"',
                      f'replica_id="{worker["worker_id"]}"'):
            assert label in labels, labels
        stack.gate.open()
        stack.wait_terminal(job)
        wait_for("the pages to be given back", lambda: float(ratio()[1]) == 0)
