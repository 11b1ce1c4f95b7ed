"""Reranking by both APIs, with real daemons: what scores are, what is refused, and what a crash changes of them: nothing."""

import hashlib
import os
import signal

import pytest
from rerank_model import CONTEXT, pieces, write_cross_encoder, write_yes_or_no
from stack import ResumingClient, Stack, wait_for

QUERY = "what is a fox"
DOCUMENTS = ["a fox is an animal", "x", "the moon", "a fox is an animal", "foxes run in the night and sleep by day"]
MODELS = ["judge", "answers"]


@pytest.fixture(scope="module", name="settings")
def model_settings(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_cross_encoder(root / "judge")
    write_yes_or_no(root / "answers")
    return {**{f"models.aliases.{name}": f"file:{root / name}" for name in MODELS},
            "models.allowed_roots": f"{root},{os.path.dirname(Stack().settings['models.aliases.demo'][5:])}"}


@pytest.fixture(scope="module", name="stack")
def running_stack(settings):
    with Stack({**settings, "orchestratord.worker_slots": "4"}) as stack:
        yield stack


def ask(stack, path, body):
    def answered():
        response = stack.request("POST", path, body)
        return None if response.status == 503 else response  # the pool is still looking at the directory

    return wait_for("the model to be known", answered)


def rerank(stack, model, documents, path="/v1/rerank", query=QUERY, **fields):
    response = ask(stack, path, {"model": model, "query": query, "documents": documents, **fields})
    assert response.status == 200, response.body
    assert response.json["object"] == "list" and response.json["model"] == model
    return response.json


def by_index(answer):
    return [score for _, score in sorted((result["index"], result["relevance_score"]) for result in answer["results"])]


def submit(stack, model, **fields):
    response = ask(stack, "/v2/tasks", {"model": model, "workload": "rerank", "query": QUERY, "input": DOCUMENTS, **fields})
    assert response.status == 202, response.body
    return response.json["job_id"]


@pytest.mark.parametrize("model", MODELS)
def test_the_best_come_first_and_each_is_as_alone(stack, model):
    answer = rerank(stack, model, DOCUMENTS)
    order = [(-result["relevance_score"], result["index"]) for result in answer["results"]]
    assert order == sorted(order) and len(order) == len(DOCUMENTS)
    scores = by_index(answer)
    assert all(0 < score < 1 for score in scores) and scores[0] == scores[3] and len(set(scores)) == 4
    assert [by_index(rerank(stack, model, [text]))[0] for text in DOCUMENTS] == scores, "a batch is each alone, bit for bit"
    assert by_index(rerank(stack, model, DOCUMENTS, query="what is the moon")) != scores
    for path in ("/rerank", "/reranking", "/v1/reranking"):
        assert rerank(stack, model, DOCUMENTS, path=path)["results"] == answer["results"]


def test_results_are_as_many_and_as_full_as_asked_for(stack):
    whole = rerank(stack, "judge", DOCUMENTS)["results"]
    some = rerank(stack, "judge", [{"text": text} for text in DOCUMENTS], top_n=2, return_documents=True)["results"]
    assert some == [{**result, "document": {"text": DOCUMENTS[result["index"]]}} for result in whole[:2]]
    assert rerank(stack, "judge", DOCUMENTS, top_n=100)["results"] == whole


def test_a_pair_is_told_as_the_tokenizer_or_the_template_tells_it(stack):
    pairs = sum(3 + len(pieces(QUERY)) + len(pieces(text)) for text in DOCUMENTS)  # [CLS] query [SEP] document [SEP]
    assert rerank(stack, "judge", DOCUMENTS)["usage"] == {"prompt_tokens": pairs, "total_tokens": pairs}
    told = sum(3 + len(f"query: {QUERY}document: {text}") for text in DOCUMENTS)  # <s> twice, </s>
    assert rerank(stack, "answers", DOCUMENTS)["usage"]["prompt_tokens"] == told
    spelled = by_index(rerank(stack, "judge", ["a fox [SEP] b"]))
    assert spelled != by_index(rerank(stack, "judge", ["a fox sep b"])), "brackets are text"


def test_a_receipt_is_of_what_was_sent(stack):
    answer = rerank(stack, "judge", DOCUMENTS[:2])
    receipt = answer["llorch"]["receipt"]
    assert receipt["tokens_out"] == 2
    texts = b"".join(hashlib.sha256(text.encode()).digest() for text in [QUERY, *DOCUMENTS[:2]])
    assert receipt["prompt_sha256"] == hashlib.sha256(texts).hexdigest()
    events = stack.read_to_end(submit(stack, "judge", input=DOCUMENTS[:2]))
    said = [event.data["t"] for event in events if event.name == "token"]
    assert receipt["output_sha256"] == hashlib.sha256("".join(said).encode()).hexdigest()
    assert [float(score) for score in said] == by_index(answer)


def test_tasks_say_scores_as_events_and_as_one_result(stack):
    scores = by_index(rerank(stack, "judge", DOCUMENTS))
    result = ask(stack, "/v2/tasks?wait=true", {"model": "judge", "workload": "rerank", "query": QUERY, "input": DOCUMENTS})
    assert result.status == 200 and result.json["scores"] == scores and result.json["text"] == ""
    assert result.json["tokens_out"] == len(DOCUMENTS)


def test_what_a_model_does_not_do_or_cannot_hold_is_refused(stack):
    def refusal(path, **body):
        response = ask(stack, path, body)
        assert response.status == 400, response.body
        error = response.json["error"]
        return error.get("llorch", error)["details"]

    judged = {"query": QUERY, "documents": ["x"]}
    assert refusal("/v2/tasks", model="judge", prompt="Once")["field"] == "workload"
    assert refusal("/v1/embeddings", model="judge", input="Once")["field"] == "workload"
    assert refusal("/v1/rerank", model="demo", **judged)["field"] == "workload"
    assert refusal("/v1/rerank", **judged)["field"] == "model"
    assert refusal("/v1/rerank", model="judge", query=QUERY, documents=[])["field"] == "documents"
    assert refusal("/v2/tasks", model="judge", workload="rerank", query=QUERY, input=[[5, 6]])["field"] == "input"
    long = refusal("/v1/rerank", model="judge", query=QUERY, documents=["x", "a " * CONTEXT])
    assert (long["field"], long["reason"], long["context_tokens"]) == ("input", "CONTEXT_TOO_LARGE", CONTEXT)
    assert refusal("/v1/rerank", model="judge", query="a " * CONTEXT, documents=["x"])["reason"] == "CONTEXT_TOO_LARGE"


@pytest.mark.parametrize("model", MODELS)
def test_kill_9_worker_between_two_scores_is_replayed(settings, model):
    """SYS-7.3.1: the stream goes on behind the scores its client holds; the bytes are those of a calm run."""
    with Stack(settings) as stack:
        calm = [event.data["t"] for event in stack.read_to_end(submit(stack, model)) if event.name == "token"]
        stack.gate.hold()
        job = submit(stack, model, on_disconnect="resume")
        stack.wait_running(job)
        stack.gate.let_pass(2)
        wait_for("a score", lambda: stack.job(job)["tokens_out"] > 0)
        client = ResumingClient(stack, job)
        worker = stack.ready_worker()
        os.kill(worker["pid"], signal.SIGKILL)
        stack.gate.open()
        client.run()
        assert [event.data["t"] for event in client.events if event.name == "token"] == calm
        assert stack.job(job)["status"] == "completed" and stack.job(job)["attempts"] >= 2


def test_kill_9_orchestratord_loses_no_job(settings):
    """SYS-7.5.1: an accepted job ends as it would have, and its receipt agrees with what it was asked for."""
    with Stack(settings) as stack:
        calm = rerank(stack, "judge", DOCUMENTS)["llorch"]["receipt"]
        stack.gate.hold()
        jobs = [submit(stack, "judge", on_disconnect="resume") for _ in range(3)]
        stack.gate.let_pass(2)
        wait_for("steps to be taken", lambda: stack.gate.steps_left() == 0)
        stack.orchestrator.kill()
        stack.orchestrator.wait()
        stack.gate.open()
        stack.start_orchestrator()
        for job in jobs:
            receipt = ResumingClient(stack, job).run().terminal().data["receipt"]
            for key in ("prompt_sha256", "output_sha256", "parameters_sha256"):
                assert receipt[key] == calm[key]
        assert QUERY not in stack.log("orchestratord")


# OC-POOL-3001: a model of the list is ready whatever it does
def test_a_reranker_can_be_preloaded(settings):
    with Stack({**settings, "models.preload": "judge"}) as stack:
        def tried():
            preload = stack.request("GET", "/v2/health").json["preloads"][0]
            return preload if preload["state"] == "ready" or preload["attempts"] >= 3 else None

        preload = wait_for("the preload", tried)
        assert preload["state"] == "ready", preload
