"""Pages of ended prompts serve later ones; jobs share a small cache. Neither changes a byte."""

import re

from stack import ResumingClient, Stack, llorch, request, wait_for

PROMPT = (
    "There was once a king who had three daughters and a golden apple tree in his garden, and every night when the moon "
    "had risen one of the apples was gone. Then the king bade his gardener keep watch under the tree until the "
    "morning, and the gardener set his eldest son to watch, but at midnight he fell asleep."
)


def worker_url(stack):
    return wait_for("a worker", lambda: [w["uri"] for p in stack.pools() for w in p["workers"] if w["uri"]])[0]


def metric(url, name):
    text = request(url, path="/metrics").body.decode()
    return int(float(re.search(rf"^{name}\{{[^}}]*\}} (\S+)$", text, re.M).group(1)))


def run(stack, **fields):
    client = ResumingClient(stack, stack.submit(max_tokens=24, temperature=0.8, seed=5, **fields)["job_id"]).run()
    return client.terminal().data["receipt"]["output_sha256"], tuple(client.tokens())


def test_a_prompt_that_begins_alike_is_found_until_the_cache_is_cleared():
    with Stack() as stack:
        cold = run(stack, prompt=PROMPT)
        worker = worker_url(stack)
        assert metric(worker, "worker_prefix_hit_tokens_total") == 0
        assert run(stack, prompt=PROMPT) == cold
        hits = metric(worker, "worker_prefix_hit_tokens_total")
        assert hits >= 64
        cleared = llorch("--json", "--url", stack.url, "cache", "clear", state_dir=stack.dir)
        assert cleared.returncode == 0, cleared.stderr
        assert cleared.stdout.count(b"worker-") == 1
        assert run(stack, prompt=PROMPT) == cold
        assert metric(worker, "worker_prefix_hit_tokens_total") == hits


def test_choices_of_one_request_share_the_pages_of_its_prompt():
    with Stack(settings={"orchestratord.worker_slots": "4"}) as stack:
        answer = stack.request("POST", "/v1/completions", {"model": "demo", "prompt": PROMPT, "max_tokens": 8, "seed": 5, "n": 4})
        assert answer.status == 200 and len({choice["text"] for choice in answer.json["choices"]}) == 4, answer.body
        whole_pages = (answer.json["usage"]["prompt_tokens"] - 1) // 64 * 64
        assert whole_pages >= 64
        assert metric(worker_url(stack), "worker_prefix_hit_tokens_total") == 3 * whole_pages


def test_jobs_that_do_not_fit_the_cache_together_get_the_same_bytes():
    prompts = [f"{n} {PROMPT}" for n in range(4)]
    with Stack(settings={"orchestratord.worker_slots": "4"}) as stack:
        alone = [run(stack, prompt=p) for p in prompts]
    small = {
        "orchestratord.worker_slots": "4",
        "orchestratord.worker_context_tokens": "128",
        "orchestratord.worker_kv_tokens": "128",
    }
    with Stack(settings=small) as stack:
        jobs = [stack.submit(prompt=p, max_tokens=24, temperature=0.8, seed=5)["job_id"] for p in prompts]
        together = []
        for job in jobs:
            client = ResumingClient(stack, job).run()
            together.append((client.terminal().data["receipt"]["output_sha256"], tuple(client.tokens())))
        assert together == alone
