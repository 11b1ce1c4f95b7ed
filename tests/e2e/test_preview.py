"""What would become of a submission: told, and nothing of it done."""

from stack import ALIAS, Stack


def ask(stack, **fields):
    return stack.request("POST", "/v2/tasks/preview", {"model": ALIAS, "prompt": "Once upon a time", "max_tokens": 8, **fields})


def test_a_preview_says_where_a_job_would_go_and_does_nothing():
    with Stack() as stack:
        first = ask(stack)
        assert first.status == 200, first.body
        assert first.json["feasible"] and first.json["decision"]["outcome"] == "start_worker"
        assert first.json["tokens_in"] > 0 and first.json["max_tokens"] == 8 and first.json["queue_position"] == 0
        assert stack.request("GET", "/v2/tasks").json["tasks"] == []
        assert all(not pool["workers"] for pool in stack.request("GET", "/v2/pools").json["pools"])

        done = stack.request("POST", "/v2/tasks?wait=true", {"model": ALIAS, "prompt": "Once upon a time", "max_tokens": 8, "seed": 1})
        assert done.status == 200, done.body
        warm = ask(stack).json
        (worker,) = [w for pool in stack.request("GET", "/v2/pools").json["pools"] for w in pool["workers"]]
        assert warm["decision"] == {"outcome": "use_worker", "pool_id": warm["decision"]["pool_id"], "worker_ids": [worker["worker_id"]]}
        assert warm["predicted_start_ms"] == 0 and "reason" not in warm


def test_a_preview_says_why_a_job_would_be_refused():
    with Stack() as stack:
        ask(stack)
        pinned = ask(stack, placement={"mode": "pin", "pin_pool_id": "nowhere"}).json
        assert not pinned["feasible"] and pinned["reason"] == "INVALID_PARAMS" and "pin_pool_id" in pinned["message"]
        late = ask(stack, deadline_ms=1).json
        assert late["feasible"] or late["reason"] == "DEADLINE_UNMET"
        for fields, status, code in (({"prompt": None}, 400, "INVALID_PARAMS"), ({"model": "nobody"}, 404, "MODEL_NOT_FOUND"),
                                     ({"max_tokens": 0}, 400, "INVALID_PARAMS")):
            refused = ask(stack, **fields)
            assert refused.status == status and refused.json["error"]["code"] == code, refused.body
