"""Images in a conversation, through the daemons: a Qwen3-VL directory with a tokenizer and a template, pictures made here."""

import base64
import json
import os
import shutil
import signal
import struct
import subprocess
import zlib
from pathlib import Path

import pytest
from stack import BIN, MODEL, REPO, Stack, wait_for
from vision_model import png, write_vision_model

TOKENS_MAX = 48


def url_of(image, kind="png"):
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


def asking(*urls, text="what is this"):
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls] + [{"type": "text", "text": text}]
    return [{"role": "user", "content": parts}]


@pytest.fixture(scope="module", name="stack")
def running_stack(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "tiny-vl"
    write_vision_model(directory)
    blind = Path(shutil.copy(MODEL, directory.parent / "text.gguf"))
    settings = {"models.aliases.eyes": f"file:{directory}", "models.aliases.text": f"file:{blind}",
                "models.allowed_roots": str(directory.parent), "orchestratord.worker_image_tokens_max": str(TOKENS_MAX),
                "orchestratord.limits.request_bytes_max": str(32 << 20)}
    with Stack(settings) as stack:
        yield stack


def post(stack, **fields):
    body = {"model": "eyes", "max_tokens": 12, "seed": 5, "temperature": 0, "logprobs": True, **fields}

    def submitted():
        response = stack.request("POST", "/v2/tasks", body)
        return None if response.status == 503 else response  # the pool is still looking at the directory

    return wait_for("the directory to be known", submitted)


def run(stack, **fields):
    response = post(stack, **fields)
    assert response.status == 202, response.body
    job_id = response.json["job_id"]
    events = stack.read_to_end(job_id)
    assert events[-1].name == "end", events[-1]
    return stack.job(job_id), [e.data for e in events if e.name == "token"]


def text_tokens(images, text="what is this"):
    return 1 + len("user: ") + 2 * images + len(text)


def test_an_image_takes_its_tokens_and_decides_the_answer(stack):
    job, first = run(stack, messages=asking(url_of(png(40, 24, 1))))
    assert job["tokens_in"] == text_tokens(1) + 5 * 3
    again, second = run(stack, messages=asking(url_of(png(40, 24, 1))))
    assert second == first and again["receipt"] == job["receipt"]
    other, third = run(stack, messages=asking(url_of(png(40, 24, 2))))
    assert third != first, "another picture, other probabilities"
    assert other["receipt"]["prompt_sha256"] != job["receipt"]["prompt_sha256"]


def test_images_are_resized_into_the_models_bounds(stack):
    job, _ = run(stack, messages=asking(url_of(png(400, 200, 3))))
    assert job["tokens_in"] == text_tokens(1) + 8 * 4, "at most 32 tokens of an image"
    job, _ = run(stack, messages=asking(url_of(png(2, 2, 3)), url_of(png(16, 24, 4))))
    assert job["tokens_in"] == text_tokens(2) + 4 + 6
    job, _ = run(stack, messages=asking(url_of((REPO / "tests/golden/images/photo.jpg").read_bytes(), "jpeg")))
    assert job["tokens_in"] == text_tokens(1) + 6 * 4, "61 x 43 pixels"


def refusal(stack, **fields):
    response = post(stack, **fields)
    assert response.status == 400 and response.code == "INVALID_PARAMS", response.body
    return response.json["error"]["details"]["reason"]


def test_what_is_refused_before_the_202(stack):
    whole = png(40, 24, 1)
    assert refusal(stack, messages=asking("https://example.com/a.png")) == "image_url"
    assert refusal(stack, messages=asking("file:///etc/passwd")) == "image_url"
    assert refusal(stack, messages=asking(url_of(whole) + "!")) == "image_base64"
    assert refusal(stack, messages=asking(url_of(b"GIF89a"))) == "image_format"
    assert refusal(stack, messages=asking(url_of(whole[:20]))) == "image_corrupt"
    assert refusal(stack, messages=asking(url_of(png(900, 2, 1)))) == "image_size", "too long"
    assert refusal(stack, messages=asking(*[url_of(png(400, 200, n)) for n in range(2)])) == "image_size", "two of 32 tokens"
    assert refusal(stack, messages=asking(url_of(whole)), model="text") == "images_unsupported"
    video = [{"role": "user", "content": [{"type": "video", "video": "data:video/mp4;base64,AAAA"}]}]
    assert refusal(stack, messages=video) == "image_part"
    job, _ = run(stack, messages=asking(text="<|image_pad|>"))
    assert job["tokens_in"] == text_tokens(0, "<|image_pad|>"), "what a user writes is no place for an image"


def test_an_image_may_be_as_large_as_a_request(stack):
    """The fields of a message have no bound of their own below limits.request_bytes_max."""
    image = png(40, 24, 1)
    chunk = b"loNg" + bytes(5 << 20)
    image = image[:33] + struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) + image[33:]
    job, _ = run(stack, messages=asking(url_of(image)))
    assert job["tokens_in"] == text_tokens(1) + 5 * 3
    text, data = {"type": "text", "text": "what is this"}, base64.b64encode(image).decode()
    asked = [
        ("/v1/chat/completions", {"max_tokens": 4, "messages": asking(url_of(image))}),
        ("/v1/responses", {"max_output_tokens": 4, "input": [
            {"role": "user", "content": [{"type": "input_image", "image_url": url_of(image)}]}]}),
        ("/v1/messages", {"max_tokens": 4, "messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}, text]}]}),
        ("/api/chat", {"options": {"num_predict": 4}, "stream": False, "messages": [
            {"role": "user", "content": "what is this", "images": [data]}]})]
    for path, body in asked:
        answer = stack.request("POST", path, {"model": "eyes", **body})
        assert answer.status == 200, (path, answer.body[:300])


def test_a_damaged_image_ends_its_job_and_no_other(stack):
    damaged = bytearray(png(40, 24, 1))
    damaged[60] ^= 0xFF
    response = post(stack, messages=asking(url_of(bytes(damaged))))
    assert response.status == 202, "its header is fine"
    ended = stack.wait_terminal(response.json["job_id"])
    assert ended["status"] == "failed" and ended["error"]["code"] == "INVALID_PARAMS", ended
    assert "damaged" in ended["error"]["message"]
    assert run(stack, messages=asking(url_of(png(40, 24, 1))))[0]["status"] == "completed"


def test_a_replay_sees_the_same_image_and_nothing_is_kept(stack):
    picture = png(40, 24, 7)
    calm, _ = run(stack, messages=asking(url_of(picture)))
    worker = next(w for w in stack.workers() if "tiny-vl" in w["model_ref"])
    stack.gate.hold()
    job = post(stack, messages=asking(url_of(picture)), on_disconnect="resume").json["job_id"]
    stack.orchestrator.kill()
    stack.orchestrator.wait()
    stored = b"".join(p.read_bytes() for p in stack.dir.glob("orchestrator.db*"))
    assert picture[50:90] not in stored and base64.b64encode(picture)[60:120] not in stored, "sealed at rest"
    stack.start_orchestrator()
    os.kill(worker["pid"], signal.SIGKILL)
    stack.gate.open()
    ended = stack.wait_terminal(job)
    assert ended["status"] == "completed", ended
    assert ended["receipt"] == calm["receipt"]


def test_llorch_run_shows_a_file(stack, tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(png(40, 24, 1))
    done = subprocess.run([BIN / "llorch", "--url", stack.url, "--json", "run", "eyes", "what is this", "--image", path, "--max-tokens",
                           "12", "--seed", "5", "--temperature", "0"], env=stack.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["end"]["tokens_in"] == text_tokens(1) + 15
