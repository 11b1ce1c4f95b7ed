"""Every control of the console, in a real browser against real daemons."""

import json
import os
import subprocess

import pytest

from chat_model import write_chat_model
from model_server import ModelServer
from stack import MODEL, Stack, wait_for

TOKEN = "c" * 40


def run_prompt(page, prompt="Once upon a time", max_tokens=24, seed="7"):
    page.type(".composer textarea", prompt)
    set_sampling(page, "Max tokens", str(max_tokens))
    set_sampling(page, "Seed", seed)
    page.click_text("button", "Run")


def label_of(page, name):
    """The selector of the control with this label."""
    found = page.wait(f"[...document.querySelectorAll('label[for]')].find((l) => l.innerText === {json.dumps(name)})?.htmlFor", name)
    return f"#{found}"


def set_sampling(page, label, value):
    page.type(label_of(page, label), value)


def test_a_prompt_runs_and_its_receipt_is_verified(page, stack):
    page.open(stack.url)
    run_prompt(page)
    page.wait_text(".run-state", "Completed")
    output = page.text(".turn-plain")
    expected = stack.submit(max_tokens=24, seed=7)["job_id"]
    assert output == "".join(e.data["t"] for e in stack.read_to_end(expected) if e.name == "token")
    assert "24" in page.text(".result .stats")
    page.click(".receipt summary")
    receipt = stack.job(expected)["receipt"]
    assert receipt["output_sha256"] in page.text(".receipt")
    page.click_text("button", "Verify")
    page.wait_text(".verified", "Same bytes.")


def test_a_drawn_seed_of_63_bits_survives_the_page(page, stack):
    page.open(stack.url)
    run_prompt(page, max_tokens=4, seed="9223372036854775807")
    page.wait_text(".run-state", "Completed")
    page.click(".receipt summary")
    assert "9223372036854775807" in page.text(".receipt")
    page.click_text("button", "Verify")
    page.wait_text(".verified", "Same bytes.")
    page.click_text("button", "Clear")
    page.wait_text(".output", "Nothing has been asked yet")


def test_a_job_is_stopped(page, stack):
    page.open(stack.url)
    stack.gate.hold()
    run_prompt(page, max_tokens=200)
    stack.gate.let_pass(3)
    page.wait("document.querySelector('.turn-plain')?.innerText.length > 2")
    page.click_text("button", "Stop")
    page.wait_text(".run-state", "Stopped")
    stack.gate.open()
    job = stack.request("GET", "/v2/tasks?limit=1").json["tasks"][0]
    assert job["status"] == "cancelled"
    assert page.eval("sessionStorage.length") == 0


def test_a_reload_goes_on_with_the_job(page, stack):
    """Only the id is kept over it: neither prompt nor output."""
    page.open(stack.url)
    stack.gate.hold()
    run_prompt(page, prompt="a prompt that nobody may keep", max_tokens=30)
    page.wait("document.querySelector('.run-state').dataset.state === 'running'")
    stack.gate.let_pass(5)
    page.wait("document.querySelector('.turn-plain')?.innerText.length > 5")
    before = page.text(".turn-plain")
    kept = page.eval("JSON.stringify({...sessionStorage, ...localStorage})")
    assert "nobody may keep" not in kept and before not in kept
    page.call("Page.reload")
    page.wait(f"document.querySelector('.turn-plain')?.innerText.startsWith({json.dumps(before)})")
    stack.gate.open()
    page.wait_text(".run-state", "Completed")
    job = stack.request("GET", "/v2/tasks?limit=1").json["tasks"][0]
    assert job["status"] == "completed" and job["tokens_out"] == 30
    page.click(".receipt summary")
    assert job["receipt"]["output_sha256"] in page.text(".receipt")
    assert page.eval("[...document.querySelectorAll('button')].find((b) => b.innerText === 'Verify').disabled")


def test_what_a_model_writes_is_text(page, stack):
    """Output that is markup stays on screen as it was written."""
    page.open(stack.url)
    page.type(".composer textarea", "x")
    page.eval("[...document.querySelectorAll('summary')].find((s) => s.innerText.includes('JSON Schema')).click()")
    hostile = "<img src=x onerror=alert(1)><script>document.title='owned'</script>"
    set_sampling(page, "JSON Schema", json.dumps({"const": hostile}))
    set_sampling(page, "Max tokens", "100")
    page.click_text("button", "Run")
    page.wait_text(".run-state", "Completed")
    assert json.loads(page.text(".turn-plain")) == hostile
    assert page.eval("document.querySelectorAll('.output img, .output script').length") == 0
    assert page.eval("document.title") != "owned"


def test_a_refusal_is_shown_in_its_words(page, stack):
    page.open(stack.url)
    run_prompt(page, max_tokens=40000)
    page.wait_text(".result .error-box", "INVALID_PARAMS")
    assert "In the log:" in page.text(".result .error-box")
    page.eval("[...document.querySelectorAll('summary')].find((s) => s.innerText.includes('JSON Schema')).click()")
    schema = label_of(page, "JSON Schema")
    page.type(schema, "{")
    page.wait(f"document.querySelector('{schema}').getAttribute('aria-invalid') === 'true'")
    page.click_text("button", "Run")
    page.wait_text(".result .error-box", "JSON Schema")


def test_a_chat_needs_a_template_and_says_so(page, stack):
    page.open(stack.url)
    page.click("input[value=chat]")
    page.type(label_of(page, "System"), "You are terse.")
    page.type(label_of(page, "Message"), "Hello")
    page.click_text("button", "Send")
    page.wait_text(".result .error-box", "chat template")
    assert page.eval(f"document.querySelector('{label_of(page, 'Message')}').value") == "Hello", "nothing typed is lost"


def test_the_probability_of_each_token_is_shown(page, stack):
    page.open(stack.url)
    page.eval("[...document.querySelectorAll('summary')].find((s) => s.innerText.includes('More sampling')).click()")
    page.click("#logprobs")
    run_prompt(page, max_tokens=12)
    page.wait_text(".run-state", "Completed")
    assert page.eval("document.querySelectorAll('.output .piece').length") == 12
    expected = stack.submit(max_tokens=12, seed=7)["job_id"]
    text = "".join(e.data["t"] for e in stack.read_to_end(expected) if e.name == "token")
    assert page.eval("[...document.querySelectorAll('.output .piece')].map((p) => p.textContent).join('')") == text
    likely, rest = page.eval("document.querySelector('.output .piece').title").split("\n\n")
    assert 0 <= int(likely.removesuffix(" %")) <= 100 and rest.startswith("likeliest:") and rest.count("%") == 4
    page.click("#logprobs")


def test_a_request_is_given_as_a_command_that_does_the_same(page, stack):
    page.open(stack.url)
    page.wait("document.querySelector('select')?.options.length === 2")
    page.type(".composer textarea", "Once upon a time, it's said")
    set_sampling(page, "Max tokens", "6")
    set_sampling(page, "Seed", "9223372036854775807")
    page.click_text("button", "As curl")
    page.wait("document.querySelector('dialog[open] pre') !== null")
    command = page.text("dialog[open] pre")
    page.click_text("button", "Close", "dialog[open]")
    page.click_text("button", "Run")
    page.wait_text(".run-state", "Completed")
    ran = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, timeout=60, check=True).stdout
    end = json.loads(next(line for line in ran.splitlines() if line.startswith("data:") and "receipt" in line).removeprefix("data:"))
    page.click(".receipt summary")
    assert end["receipt"]["output_sha256"] in page.text(".receipt") and end["receipt"]["seed"] == 9223372036854775807


@pytest.fixture(scope="module")
def chat_stack(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "tiny-llama"
    write_chat_model(directory)
    with Stack({"models.aliases.demo": f"file:{directory}", "models.allowed_roots": str(directory.parent)}) as running:
        wait_for("the model to be known", lambda: running.request("GET", "/v2/catalog/models?facts=true").json["models"][0].get("facts"))
        yield running


def choose(page, label, value):
    page.eval(f"(() => {{ const s = document.querySelector('{label_of(page, label)}'); s.value = {json.dumps(value)}; s.dispatchEvent(new Event('change')); }})()")


def start_chat(page, chat_stack):
    page.open(chat_stack.url)
    page.wait("document.querySelector('select')?.value === 'demo'")
    page.click("input[value=chat]")
    set_sampling(page, "Max tokens", "12")
    set_sampling(page, "Seed", "7")


def test_a_chat_goes_on_below_its_answers(page, chat_stack):
    start_chat(page, chat_stack)
    page.type(label_of(page, "System"), "be short")
    for turn, text in enumerate(("hello", "and then?")):
        page.type(label_of(page, "Message"), text)
        page.key("Enter", modifiers=2)
        page.wait(f"document.querySelectorAll('.turn').length === {2 * turn + 2} && document.querySelector('.run-state').innerText.includes('Completed')")
        assert page.eval(f"document.activeElement.id === '{label_of(page, 'Message')[1:]}'"), "one types on where one was"
    assert [line for line in page.text(".output").splitlines() if line in ("User", "Assistant")] == ["User", "Assistant"] * 2
    # The next message is typed below the conversation.
    assert page.eval("document.querySelector('.result').compareDocumentPosition(document.querySelector('.composer')) & 4")
    page.click_text("button", "Clear")
    page.wait_text(".output", "Nothing has been asked yet")


def offer_a_tool(page):
    """The example, to be called. Random weights write a text without end where one is allowed."""
    page.click_text("button", "Example")
    page.wait("document.querySelector('.tools .field-error').hidden")
    tools = json.loads(page.eval(f"document.querySelector('{label_of(page, 'Tools')}').value"))
    tools[0]["function"]["parameters"]["properties"]["place"] = {"enum": ["Oslo", "Rome"]}
    page.type(label_of(page, "Tools"), json.dumps(tools))
    choose(page, "Calls", "required")
    set_sampling(page, "Max tokens", "")


def test_a_tool_is_called_and_its_result_goes_back(page, chat_stack):
    start_chat(page, chat_stack)
    page.eval("document.querySelector('.tools summary').click()")
    page.type(label_of(page, "Tools"), "{")
    page.wait_text(".tools .field-error", "Tools:")
    page.type(label_of(page, "Message"), "what is the weather?")
    page.click_text("button", "Send")
    page.wait_text(".result .error-box", "INVALID_PARAMS")
    offer_a_tool(page)
    page.click_text("button", "Send")
    page.wait_text(".call", "weather")
    page.wait_text(".run-state", "Completed")
    arguments = json.loads(page.text(".call pre"))
    assert arguments["place"] in ("Oslo", "Rome")
    page.click(".receipt summary")
    page.click_text("button", "Verify")
    page.wait_text(".verified", "Same bytes.")
    page.type(label_of(page, "Result of weather"), '{"sky": "clear"}')
    choose(page, "Calls", "none")
    set_sampling(page, "Max tokens", "12")
    page.click_text("button", "Send results")
    page.wait("document.querySelectorAll('.turn').length === 4 && document.querySelector('.run-state').innerText.includes('Completed')")
    assert '{"sky": "clear"}' in page.text(".turn-tool")


def test_the_keyboard_alone_runs_a_prompt(page, stack):
    page.open(stack.url)
    page.wait("!document.querySelector('button.main').disabled")
    page.type(".composer textarea", "Once")
    page.key("Enter", modifiers=2)
    page.wait_text(".run-state", "Completed")


def test_jobs_say_why_they_wait_and_are_cancelled(page, stack):
    stack.gate.hold()
    first = stack.submit(max_tokens=50)["job_id"]
    stack.wait_running(first)
    waiting = [stack.submit(max_tokens=50)["job_id"] for _ in range(4)]
    page.open(f"{stack.url}/#/jobs")
    page.wait_text(".list", "queued 2")
    page.click(".list .job")
    page.wait("location.hash.startsWith('#/jobs/')")
    page.go(f"jobs/{waiting[-1]}")
    page.wait_text(".detail .note", "WAITING_FOR_")
    assert "Queued" in page.text(".timeline-legend")
    page.click_text("button", "Cancel job")
    page.wait("document.querySelector('.detail').dataset.state === 'cancelled'")
    assert stack.job(waiting[-1])["status"] == "cancelled"
    stack.gate.open()
    for job_id in [first, *waiting[:-1]]:
        stack.wait_terminal(job_id)
    page.go(f"jobs/{first}")
    page.wait("document.querySelector('.detail').dataset.state === 'completed'")
    assert {"Queued", "Prompt", "Tokens"} <= set(page.text(".timeline-legend").replace("\n", " ").split())
    for name in ("waiting", "running", "failed", "ended", "all"):
        page.click(f"[data-filter={name}]")
        page.wait(f"document.querySelector('[data-filter={name}]').getAttribute('aria-pressed') === 'true'")
    page.type(".toolbar input", "no such id")
    page.wait_text(".list-panel", "No job matches")
    page.type(".toolbar input", first[:8])
    page.wait(f"document.querySelectorAll('.list .job:not([hidden])').length === 1")
    page.click_text("button", "Close")
    page.wait("document.querySelector('.detail').hidden")


def test_ids_are_short_where_nobody_chose_them(page, stack):
    jobs = {stack.submit(max_tokens=2, task_id=task)["job_id"]: task for task in ("research-agent-1", "research-agent-2")}
    worker = stack.wait_terminal(list(jobs)[-1])["worker_id"]
    page.open(f"{stack.url}/#/jobs")
    for job_id, task in jobs.items():
        page.wait(f"[...document.querySelectorAll('.list .job-id')].some((e) => e.innerText === '{task}' && e.title === '{task}')", task)
        page.go(f"jobs/{job_id}")
        page.wait_text(".detail h2", task)
    own = stack.submit(max_tokens=2)["job_id"]
    page.go(f"jobs/{own}")
    page.wait(f"document.querySelector('.detail h2').innerText === '{own[:8]}'")
    short = page.eval(f"import('/console/format.js').then((format) => format.shortId('{worker}'))")
    assert short == worker[:15] and len(worker) == 43


def test_the_last_minute_of_all_workers_is_drawn(page, stack):
    stack.gate.hold()
    job = stack.submit(max_tokens=20)["job_id"]
    stack.wait_running(job)
    page.open(f"{stack.url}/#/jobs")
    page.wait("document.querySelector('.activity canvas')?.getAttribute('aria-label').endsWith('of which 1 run')")
    # Its bar is the only one that reaches the right edge: it runs now.
    drawn = """(() => { const c = document.querySelector('.activity canvas'); const g = c.getContext('2d');
        for (let y = 8; y < c.height - 24; y += 22) if (g.getImageData(c.width - 6, y, 1, 1).data[3] === 255) return y; return 0; })()"""
    y = page.wait(drawn)
    box = page.eval("(() => { const b = document.querySelector('.activity canvas').getBoundingClientRect(); return [b.x, b.y, b.width]; })()")
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=box[0] + box[2] - 2, y=box[1] + y, button="left", clickCount=1)
    page.wait(f"location.hash === '#/jobs/{job}'")
    stack.gate.open()
    stack.wait_terminal(job)


@pytest.mark.parametrize("link", ("nothing", "toString", "__proto__", "%E0%A4%A"))
def test_a_link_to_no_view_shows_the_first(page, stack, link):
    page.open(f"{stack.url}/#/{link}")
    page.wait("document.querySelector('.composer textarea') !== null", "the playground")


def test_an_unknown_job_is_explained(page, stack):
    page.open(f"{stack.url}/#/jobs/nobody")
    page.wait_text(".detail", "JOB_NOT_FOUND")


def test_memory_is_shown_by_what_it_is_for(page, stack):
    stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])
    page.open(f"{stack.url}/#/pools")
    page.wait_text(".legend", "weights")
    legend = page.text(".legend")
    for word in ("weights", "cache", "workspace", "free"):
        assert word in legend, legend
    worker = stack.pools()[0]["workers"][0]
    memory = worker["memory_by_device"]
    assert sum(memory[0].values()) == worker["vram_bytes"] and memory[0]["weights_bytes"] > 1_000_000
    # The segments add up to the device.
    assert abs(page.eval("[...document.querySelectorAll('.memory:not(.enlarged) .part')].reduce((s, p) => s + Number(p.style.flexGrow), 0)") - 1) < 0.001
    page.wait_text(".workers", "fairytale-5m-q8_0.gguf")


def test_a_pool_is_drained_reloaded_and_purged(page, stack):
    stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])
    page.open(f"{stack.url}/#/pools")
    page.click_text("button", "Drain")
    page.wait_text(".pool-head", "draining")
    assert stack.pools()[0]["status"] == "draining"
    page.click_text("button", "End drain")
    page.wait_text(".pool-head", "healthy")
    stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])
    page.wait_text(".workers", "ready")
    page.click_text("button", "Clear prefix caches")
    page.wait_text(".view-head", "1 prefix cache cleared")
    page.click_text("button", "Reload …")
    page.wait("document.querySelector('dialog[open] select')?.options.length === 2")
    page.eval("(() => { const s = document.querySelector('dialog[open] select'); s.value = 'demo-f16'; s.dispatchEvent(new Event('change')); })()")
    page.click_text("button", "Reload", "dialog[open]")
    page.wait_text(".workers", "fairytale-5m-f16.gguf")
    wait_for("the reload to end", lambda: stack.request("GET", "/v2/pools/pool-1/health").json.get("operation", {}).get("state") != "running")
    page.wait_text(".workers", "ready")
    page.click_text("button", "Purge …")
    page.click_text("button", "Leave them", "dialog[open]")
    page.wait("!document.querySelector('dialog[open]')")
    page.click_text("button", "Purge …")
    page.click_text("button", "Purge", "dialog[open]")
    page.wait_text(".pool", "No worker")
    assert stack.workers() == []
    for is_forced, when in ((True, "at once"), (False, "when idle")):  # the purge above has left "when idle"
        job = stack.submit(max_tokens=2)["job_id"]
        stack.wait_terminal(job)
        page.wait_text(".workers", "ready")
        page.click_text("button", "Purge …")
        if is_forced:
            page.click_text("label", "At once: running jobs go back to the queue", "dialog[open]")
        page.click_text("button", "Purge", "dialog[open]")
        page.wait_text(".pool .outcome", f"to be stopped {when}: 1 worker")
        page.wait_text(".pool", "No worker")


def test_models_say_where_they_fit(page, stack):
    page.open(f"{stack.url}/#/models")
    page.wait_text(".models", "fits now")
    assert "context" in page.text(".models") and "llama" in page.text(".models")
    stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])
    page.wait_text(".models", "1 worker here")


def test_a_model_is_pulled_pinned_and_removed(page, tmp_path):
    with ModelServer() as server, Stack({"models.cache_dir": str(tmp_path), "models.pull.allowed_hosts": "127.0.0.1"}) as own:
        item = server.add("/tale.gguf", MODEL.read_bytes())
        page.open(f"{own.url}/#/models")
        page.wait("document.querySelectorAll('#known-models option').length >= 1")
        page.type(".pull input", "no model has this name")
        page.click_text("button", "Pull", ".pull")
        page.wait_text(".pull .error-box", "INVALID_PARAMS")
        # The list says what can be had; its button does what typing the name does, and a refusal is shown in its words.
        page.wait_text(".known", "smollm2")
        assert "Apache-2.0" in page.text(".known") and "fits a device here" in page.text(".known")
        item.hold_after = 1 << 20
        page.type(label_of(page, "Pull a model"), f"{server.url}/tale.gguf")
        page.type(label_of(page, "Name it"), "my-tale")
        page.click_text("button", "Pull", ".pull")
        page.wait_text(".pull .outcome", "fetching")
        page.wait_text(".models", "fetching")
        item.go_on.set()
        page.wait_text(".pull .outcome", "my-tale is here.")
        page.wait_text(".models", "fits now")
        page.click_text("button", "Pin")
        page.wait_text(".models", "Unpin")  # "pinned" stands in this test's directory, which is shown, too
        assert [m["model_id"] for m in own.request("GET", "/v2/catalog/models").json["models"] if m.get("pinned")] == ["my-tale"]
        page.click_text("button", "Remove …")
        page.click_text("button", "Remove", "dialog[open]")
        page.wait("!document.querySelector('.models').innerText.includes('tale.gguf')")
        assert "my-tale" not in [m["model_id"] for m in own.request("GET", "/v2/catalog/models").json["models"]]


def test_plots_draw(page, stack):
    page.open(f"{stack.url}/#/plots")
    stack.wait_terminal(stack.submit(max_tokens=20)["job_id"])
    page.wait("[...document.querySelectorAll('.chart .figure b')].filter((b) => b.innerText !== '–').length >= 6", "figures")
    page.wait("document.querySelectorAll('.line[d*=L]').length >= 3", "lines")
    assert page.eval("document.querySelector('.chart svg').getAttribute('aria-label')").startswith("Tokens per second")


def test_settings_are_shown_as_read(page, stack):
    page.open(f"{stack.url}/#/settings")
    page.wait_text(".settings", "orchestratord.queue.capacity")
    page.click(".toolbar input[type=checkbox]")
    page.wait("!document.querySelector('.settings').innerText.includes('orchestratord.queue.capacity')")
    assert "orchestratord.limits.workers_per_gpu" in page.text(".settings")
    page.type(".toolbar input[type=search]", "workers_per_gpu")
    page.wait("document.querySelectorAll('.settings tbody tr').length === 1")


def test_about_names_version_and_limits(page, stack):
    page.open(f"{stack.url}/#/about")
    version = stack.request("GET", "/v2/meta/version").json
    page.wait_text(".about", version["build"])
    page.wait_text(".about", "healthy")


def test_the_theme_is_chosen_and_kept(page, stack):
    page.open(stack.url)
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.eval(colour)
    page.click("#theme")
    dark = page.eval(colour)
    assert dark != light
    page.call("Page.reload")
    page.wait(f"document.readyState === 'complete' && {colour} === '{dark}'")


def test_a_dead_service_is_noticed_and_so_is_its_return(browser):
    page = browser.page()
    with Stack() as stack:
        page.open(f"{stack.url}/#/jobs")
        page.wait_text("#health", "healthy")
        stack.orchestrator.kill()
        stack.orchestrator.wait()
        page.wait_text("#health", "not reachable")
        page.wait_text(".error-box", "UNREACHABLE")
        stack.start_orchestrator()
        page.wait_text("#health", "healthy")
        page.wait("!document.querySelector('.error-box')")
        assert page.complaints == []
    page.close()


@pytest.fixture(scope="module")
def guarded_stack():
    with Stack(token=TOKEN) as running:
        yield running


def test_a_token_is_asked_for_used_and_forgotten(page, guarded_stack):
    page.open(guarded_stack.url)
    page.wait("document.getElementById('login').open")
    page.type("#login-token", "x" * 40)
    page.click_text("button", "Use token")
    page.wait_text("#login", "That token is not known here")
    page.type("#login-token", TOKEN)
    page.click_text("button", "Use token")
    page.wait_text("#health", "healthy")
    page.wait("!document.querySelector('.composer button.main').disabled")
    run_prompt(page, max_tokens=3)
    page.wait_text(".run-state", "Completed")
    assert page.eval("JSON.stringify([document.cookie, {...localStorage}])") == '["",{}]'
    page.click_text("button", "Forget token")
    page.wait("document.getElementById('login').open")
    page.click_text("button", "Not now")
    page.wait_text("#health", "needs a token")


def test_a_command_has_its_token_from_the_environment(page, guarded_stack, tmp_path):
    """Of llorch's own variables, whichever of the two is there."""
    page.open(guarded_stack.url)
    page.wait("document.getElementById('login').open")
    page.type("#login-token", TOKEN)
    page.click_text("button", "Use token")
    page.wait("!document.querySelector('.composer button.main').disabled")
    set_sampling(page, "Max tokens", "3")
    page.click_text("button", "As curl")
    page.wait("document.querySelector('dialog[open] pre') !== null")
    command = page.text("dialog[open] pre")
    assert TOKEN not in command
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    for variable in ({"LLORCH_API_TOKEN": TOKEN}, {"LLORCH_API_TOKEN_FILE": str(file)}):
        ran = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60, check=True,
                             env={"PATH": os.environ["PATH"], **variable})
        assert "output_sha256" in ran.stdout, ran


def test_an_operator_sees_whose_jobs_are(page, tmp_path):
    secret = tmp_path / "ann"
    secret.write_text("a" * 40)
    secret.chmod(0o600)
    config = tmp_path / "config.yaml"
    config.write_text(f"orchestratord: {{tenants: [{{id: ann, token_file: {secret}}}]}}\n")
    config.chmod(0o600)
    with Stack(token=TOKEN, env={"LLORCH_CONFIG": str(config)}) as running:
        def use(token):
            page.wait("document.getElementById('login').open")
            page.type("#login-token", token)
            page.click_text("button", "Use token")
            page.wait("document.querySelectorAll('.list .job:not([hidden])').length === 1")

        body = {"model": "demo", "prompt": "Once", "max_tokens": 1}
        job = running.request("POST", "/v2/tasks", body, headers={"Authorization": f"Bearer {'a' * 40}"}).json["job_id"]
        running.wait_terminal(job)
        page.open(running.url + "#/jobs")
        use(TOKEN)
        assert "ann" in page.text(".list .job-tenant") and page.eval("getComputedStyle(document.querySelector('.list .job-tenant')).display") != "none"
        page.click_text("button", "Forget token")
        use("a" * 40)
        assert page.eval("getComputedStyle(document.querySelector('.list .job-tenant')).display") == "none"


def test_a_foreign_page_may_not_frame_or_call_it(page, stack):
    """The page is public, and yet another site can neither show nor use it."""
    response = stack.request("GET", "/", headers={"Sec-Fetch-Site": "cross-site"})
    assert (response.status, response.code) == (403, "FORBIDDEN")
    assert stack.request("GET", "/", headers={"Host": "evil.example"}).status == 403
