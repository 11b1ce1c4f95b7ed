"""Log-probabilities of a prompt, as lm-evaluation-harness asks for them: the same numbers however they are computed."""

import json
import math
import os
import signal
import struct

from stack import ALIAS, MODEL, ResumingClient, Stack, llorch, wait_for

TALE = ("There was once a king who had three daughters and a golden apple tree in his garden, and every night when the moon had risen one of the "
        "apples was gone. Then the king bade his gardener keep watch under the tree until the morning.")
# What the harness sends, but for the prompt.
ASKED = {"model": ALIAS, "max_tokens": 1, "logprobs": 1, "echo": True, "seed": 1234, "temperature": 0}


def ids_of(stack, text):
    return stack.request("POST", "/tokenize", {"model": ALIAS, "content": text, "add_special": True}).json["tokens"]


def scored(stack, prompt, **fields):
    answer = stack.request("POST", "/v1/completions", {**ASKED, "prompt": prompt, **fields})
    assert answer.status == 200, answer.body
    return answer.json


def lists_of(choice):
    """The four lists, and the sum as the harness makes it of all that has a number."""
    told = choice["logprobs"]
    assert len({len(told[name]) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}) == 1
    assert told["token_logprobs"][0] is None and told["top_logprobs"][0] is None
    return told, sum(told["token_logprobs"][1:-1])


def test_they_are_the_models(stack, tmp_path):
    """Against the logits of the command line, in float64."""
    ids = ids_of(stack, TALE)
    out = tmp_path / "logits.f32"
    done = llorch("model", "logits", str(MODEL), "--tokens", ",".join(map(str, ids)), "--out", str(out), state_dir=tmp_path)
    assert done.returncode == 0, done.stderr
    told, _ = lists_of(scored(stack, ids)["choices"][0])
    assert len(told["tokens"]) == len(ids) + 1
    data = out.read_bytes()
    for i in range(1, len(ids)):
        logits = struct.unpack_from("<2048f", data, 4 * 2048 * (i - 1))
        top = max(logits)
        total = top + math.log(sum(math.exp(value - top) for value in logits))
        assert abs(told["token_logprobs"][i] - (logits[ids[i]] - total)) < 1e-4, i
        assert abs(max(told["top_logprobs"][i].values()) - (top - total)) < 1e-4, i
        # The harness takes a token for the greedy one by this comparison.
        is_greedy = told["token_logprobs"][i] == max(told["top_logprobs"][i].values())
        assert is_greedy if logits[ids[i]] == top else not is_greedy or top - logits[ids[i]] < 1e-5, i


def test_the_numbers_are_those_of_the_draws(stack):
    """What was drawn greedily, said again as a prompt, has the bits that were told at the draw."""
    ids = ids_of(stack, "Once upon a time")
    job = stack.submit(prompt=ids, max_tokens=40, temperature=0, logprobs=True, top_logprobs=1)["job_id"]
    drawn = [event.data["logprobs"] for event in stack.read_to_end(job) if event.name == "token"]
    assert len(drawn) > 10
    told, _ = lists_of(scored(stack, ids + [token["id"] for token in drawn])["choices"][0])
    assert told["token_logprobs"][len(ids):-1] == [token["logprob"] for token in drawn]
    assert all(value == max(top.values()) for value, top in zip(told["token_logprobs"][len(ids):-1], told["top_logprobs"][len(ids):-1]))
    (next_token,) = [e.data["logprobs"] for e in stack.read_to_end(stack.submit(
        prompt=ids + [token["id"] for token in drawn], max_tokens=1, temperature=0, logprobs=True)["job_id"]) if e.name == "token"]
    assert told["token_logprobs"][-1] == next_token["logprob"]


def test_they_are_told_as_by_vllm(stack):
    ids = ids_of(stack, TALE)
    told, _ = lists_of(scored(stack, ids)["choices"][0])
    asked = {"model": ALIAS, "prompt": ids, "max_tokens": 1, "temperature": 0, "seed": 1234, "prompt_logprobs": 1}
    answer = stack.request("POST", "/v1/completions", asked)
    assert answer.status == 200, answer.body
    (choice,) = answer.json["choices"]
    assert choice["prompt_logprobs"][0] is None and choice["logprobs"] is None
    for i, entry in enumerate(choice["prompt_logprobs"][1:], 1):
        own, *others = entry.items()
        assert own[0] == str(ids[i]) and own[1]["logprob"] == told["token_logprobs"][i] and len(others) <= 1
        assert own[1]["rank"] == (None if others else 1)
        assert all(other["rank"] == 1 and other["logprob"] >= own[1]["logprob"] for _, other in others)
    beside = stack.request("POST", "/v1/completions", {**asked, "logprobs": 0}).json["choices"][0]
    assert beside["prompt_logprobs"] == choice["prompt_logprobs"] and beside["text"] == choice["text"]
    assert beside["logprobs"]["top_logprobs"] == [{}]
    refused = stack.request("POST", "/v1/completions", {**asked, "stream": True})
    assert refused.status == 400 and refused.json["error"]["param"] == "prompt_logprobs"


def test_steps_company_and_the_cache_change_no_bit(stack):
    ids = ids_of(stack, TALE)
    prompts = [ids, ids_of(stack, "The fox said: I will run and run and run."), ids[:-7], ids]
    alone = [scored(stack, prompt)["choices"][0] for prompt in prompts]
    assert alone[0] == alone[3]
    with Stack(settings={"orchestratord.worker_slots": "4", "pool-managerd.worker_speculation": "ngram"}) as other:
        together = scored(other, prompts)
        assert [choice["index"] for choice in together["choices"]] == [0, 1, 2, 3]
        assert together["usage"]["prompt_tokens"] == sum(map(len, prompts))
        for one, choice in zip(alone, together["choices"]):
            assert lists_of(choice) == lists_of(one) and choice["text"] == one["text"]
        warm = other.submit(prompt=ids, max_tokens=1)["job_id"]  # its pages are in the cache now
        other.wait_terminal(warm)
        assert lists_of(scored(other, ids)["choices"][0]) == lists_of(alone[0])


def test_text_and_offsets_are_those_of_the_prompt(stack):
    whole = scored(stack, TALE)["choices"][0]
    told, total = lists_of(whole)
    assert whole["text"].startswith(TALE)
    assert lists_of(scored(stack, ids_of(stack, TALE))["choices"][0])[1] == total, "ids and text are one prompt"
    assert told["text_offset"] == sorted(told["text_offset"]) and told["text_offset"][-1] == len(TALE)
    for at, token in zip(told["text_offset"][:-1], told["tokens"]):
        assert whole["text"][at:].startswith(token) or token.startswith(" "), (at, token)
    prompt_alone = scored(stack, TALE, max_tokens=0)
    assert prompt_alone["choices"][0]["text"] == TALE and prompt_alone["usage"]["completion_tokens"] == 0
    assert prompt_alone["choices"][0]["logprobs"]["token_logprobs"] == told["token_logprobs"][:-1]
    frames = stack.request("POST", "/v1/completions", {**ASKED, "prompt": TALE, "stream": True}).body.decode().split("\n\n")
    chunks = [json.loads(frame[6:])["choices"][0] for frame in frames if frame.startswith("data: {")]
    assert "".join(chunk["text"] for chunk in chunks) == whole["text"]
    assert [v for chunk in chunks if chunk["logprobs"] for v in chunk["logprobs"]["token_logprobs"]] == told["token_logprobs"]


def test_a_task_tells_them_as_events_and_in_its_result(stack):
    body = {"prompt": ids_of(stack, "Once upon a time"), "max_tokens": 3, "temperature": 0, "logprobs": True, "prompt_logprobs": True}
    job = stack.submit(**body)["job_id"]
    events = [event.data for event in stack.read_to_end(job) if event.name == "token"]
    told = [event["prompt_logprobs"] for event in events if "prompt_logprobs" in event]
    assert [event["i"] for event in events] == list(range(len(events))) and len(events) == len(told) + 3
    assert [token["id"] for token in told] == body["prompt"] and "logprob" not in told[0]
    view = stack.job(job)
    assert (view["tokens_in"], view["tokens_out"]) == (len(told), 3)
    result = stack.request("POST", "/v2/tasks?wait=true", {"model": ALIAS, **body}).json
    assert result["prompt_logprobs"] == told and len(result["logprobs"]) == 3 == result["tokens_out"]
    plain = stack.read_to_end(stack.submit(**{**body, "prompt_logprobs": False})["job_id"])[-1].data
    assert plain["receipt"] == view["receipt"], "it decides nothing of the output"


def test_a_run_after_a_crash_tells_the_same_bits():
    with Stack() as stack:
        body = {"prompt": ids_of(stack, TALE), "max_tokens": 4, "temperature": 0, "logprobs": True, "top_logprobs": 2, "prompt_logprobs": True}
        undisturbed = ResumingClient(stack, stack.submit(**body)["job_id"]).run()
        stack.gate.hold()
        job = stack.submit(**body)["job_id"]
        stack.gate.let_pass(2)
        wait_for("two steps", lambda: stack.gate.steps_left() == 0)
        stream, read = stack.events(job), []
        for event in stream:
            read.append(event)
            if sum(e.name == "token" for e in read) == 17:  # the first step's
                break
        os.kill(stack.ready_worker()["pid"], signal.SIGKILL)
        stack.gate.open()
        again = ResumingClient(stack, job).run()
        told = [[(e.id, e.data) for e in client.events if e.name == "token"] for client in (undisturbed, again)]
        assert told[0] == told[1]
        assert [(e.id, e.data) for e in read if e.name == "token"] == told[0][:17]
        assert stack.job(job)["attempts"] == 2
        stream.close()


def test_what_cannot_be_told_is_refused(stack):
    ids = ids_of(stack, "Once")
    for fields, field in (({"logprobs": 21}, "logprobs"), ({"suffix": "end", "prompt": "Once"}, "suffix"), ({"echo": False, "max_tokens": 0}, "max_tokens")):
        answer = stack.request("POST", "/v1/completions", {**ASKED, "prompt": ids, **fields})
        assert (answer.status, answer.json["error"]["param"]) == (400, field), answer.body
    alone = stack.request("POST", "/v2/tasks", {"model": ALIAS, "prompt": ids, "prompt_logprobs": True})
    assert alone.status == 400 and b"logprobs" in alone.body


def test_prompts_are_in_no_log():
    with Stack() as stack:
        scored(stack, "a king named Xanthippus Quuxfield rode out")
        assert all("Quux" not in stack.log(name) for name in ("orchestratord", "pool-managerd"))
