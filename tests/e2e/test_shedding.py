"""A breaker that closes by itself: while jobs of a model wait for too long, new ones of it are refused, batch jobs first."""

from stack import Stack, wait_for


# ORCH-3040: load is shed while the service misses its objective, and only then.
def test_load_is_shed_while_the_wait_is_too_long():
    with Stack({"orchestratord.queue.shed_after_ms": "1000"}) as stack:
        stack.wait_terminal(stack.submit(max_tokens=1)["job_id"])
        stack.gate.hold()
        stack.submit(max_tokens=1)  # has the only slot
        waiting = stack.submit(max_tokens=1)["job_id"]

        def refusal(priority):
            body = {"model": "demo", "prompt": "Once", "max_tokens": 1, "priority": priority}
            answer = stack.request("POST", "/v2/tasks", body)
            assert answer.status in (202, 429)
            if answer.status == 202:
                return None
            preview = stack.request("POST", "/v2/tasks/preview", body).json  # nothing runs: the wait has only grown
            assert preview["feasible"] is False and preview["reason"] == "QUEUE_FULL"
            error = answer.json["error"]
            assert (error["code"], error["policy_label"], error["retriable"]) == ("QUEUE_FULL", "circuit-breaker", True)
            assert "retry-after" in answer.headers
            return error

        shed = wait_for("a batch job to be refused", lambda: refusal("batch"), every_s=0.2)
        assert shed["details"]["waited_ms"] >= 1000
        shed = wait_for("an interactive job to be refused", lambda: refusal("interactive"), every_s=0.2)
        assert shed["details"]["waited_ms"] >= 2000
        stack.gate.open()
        stack.wait_terminal(waiting)
        batch = {"model": "demo", "prompt": "Once", "max_tokens": 1, "priority": "batch"}
        wait_for("the queue to be short again", lambda: stack.request("POST", "/v2/tasks", batch).status == 202, every_s=0.2)
