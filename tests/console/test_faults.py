"""What the console does when orchestratord, or a proxy before it, fails or answers late, and what it forgets with a token."""

import hashlib
import json
import signal
import threading

import pytest
from model_server import ModelServer
from proxy import Proxy
from stack import HANG_S, MODEL, Stack, wait_for
from test_controls import chat_stack, choose, label_of, offer_a_tool, run_prompt, set_sampling, start_chat  # noqa: F401

TOKEN = "c" * 40
READER = "r" * 40

# Time that passes when a test says so: pass_time(ms) ends what waits for so long.
CLOCK = """(() => {
    const waits = new Map(); // by a number below those of the browser
    const begin = setTimeout, end = clearTimeout;
    let last = 0;
    const hold = (ms, step) => (waits.set(--last, {ms, step}), last);
    window.setTimeout = (step, ms, ...more) => (ms < 15000 ? begin(step, ms, ...more) : hold(ms, () => step(...more)));
    window.clearTimeout = (id) => waits.delete(id) || end(id);
    AbortSignal.timeout = (ms) => {
        const limit = new AbortController();
        hold(ms, () => limit.abort(new DOMException("late", "TimeoutError")));
        return limit.signal;
    };
    window.pass_time = (ms) => { for (const [id, wait] of [...waits]) if (wait.ms <= ms && waits.delete(id)) wait.step(); };
})();"""


# The page's looks at a job that waits come without a wait between them; it counts them, and those that ask something.
QUICK_LOOKS = """(() => {
    const wait = setTimeout, ask = fetch;
    Object.assign(window, {looks: 0, asked: 0});
    window.setTimeout = (step, ms, ...more) => (ms === 700 && ++looks, wait(step, ms === 700 ? 20 : ms, ...more));
    window.fetch = (path, ...more) => (/^.v2.tasks.[^/?]+$/.test(path) && ++asked, ask(path, ...more));
})();"""


@pytest.fixture
def proxy(stack):
    with Proxy(stack.url) as running:
        yield running
    stack.gate.open()


@pytest.fixture(scope="module")
def guarded_stack(tmp_path_factory):
    reader = tmp_path_factory.mktemp("tokens") / "reader"
    reader.write_text(READER)
    reader.chmod(0o600)
    with Stack({"auth.reader_token_files": str(reader)}, token=TOKEN) as running:
        yield running


def begin_held(page, url, stack, tokens=24):
    """A job whose first tokens are on screen and that says no more until the gate is opened. Returns its id."""
    page.open(url)
    page.wait("document.querySelector('select')?.options.length === 2")
    stack.gate.hold()
    run_prompt(page, max_tokens=tokens)
    stack.gate.let_pass(3)
    page.wait("document.querySelector('.turn-plain')?.innerText.length > 2")
    return page.eval("sessionStorage.getItem('llorch-running-job')")


def ends_whole(page, stack, job_id):
    stack.gate.open()
    page.wait_text(".run-state", "Completed")
    text = "".join(e.data["t"] for e in stack.read_to_end(stack.submit(max_tokens=24, seed=7)["job_id"]) if e.name == "token")
    assert page.text(".turn-plain") == text and stack.job(job_id)["status"] == "completed"


@pytest.mark.parametrize("status", (502, 503))
def test_a_job_goes_on_behind_a_proxy_that_has_no_upstream(page, stack, proxy, status):
    job_id = begin_held(page, proxy.url, stack)
    asked = threading.Semaphore(0)

    def in_the_way(handler):
        handler.answer(status, b"<html>Bad Gateway</html>", "text/html")
        if handler.path.endswith("/events"):
            asked.release()
        return True

    proxy.in_the_way = in_the_way
    proxy.cut()
    assert asked.acquire(timeout=HANG_S) and asked.acquire(timeout=15), "it asks again"
    assert "Running" in page.text(".run-state")
    assert page.eval("sessionStorage.getItem('llorch-running-job')") == job_id
    proxy.in_the_way = None
    ends_whole(page, stack, job_id)


def test_a_stream_that_falls_silent_is_asked_for_again(page, stack, proxy):
    page.call("Page.addScriptToEvaluateOnNewDocument", source=CLOCK)
    job_id = begin_held(page, proxy.url, stack)
    asked, ended = threading.Semaphore(0), threading.Event()

    def in_the_way(handler):
        if not handler.path.endswith("/events"):
            return False
        asked.release()
        return ended.wait(HANG_S)

    proxy.in_the_way = in_the_way
    page.eval("pass_time(60000)")  # of the stream, which has come so far
    assert asked.acquire(timeout=15)
    page.eval("pass_time(60000)")  # of a request that nothing answers
    assert asked.acquire(timeout=15)
    proxy.in_the_way = None
    page.eval("pass_time(60000)")
    ends_whole(page, stack, job_id)
    ended.set()


def test_a_service_that_hangs_is_not_reachable(page):
    page.call("Page.addScriptToEvaluateOnNewDocument", source=CLOCK)
    with Stack() as stack:
        page.open(f"{stack.url}/#/jobs")
        page.wait_text("#health", "healthy")
        stack.orchestrator.send_signal(signal.SIGSTOP)
        try:
            page.wait("pass_time(15000), document.getElementById('health').innerText.includes('not reachable')")
            page.wait("pass_time(15000), (document.querySelector('.error-box')?.innerText ?? '').includes('UNREACHABLE')")
        finally:
            stack.orchestrator.send_signal(signal.SIGCONT)
        page.wait_text("#health", "healthy")
        page.wait("!document.querySelector('.error-box')")


def test_a_command_that_cannot_be_given_leaves_the_job_on_screen(page, stack, proxy):
    job_id = begin_held(page, proxy.url, stack)
    page.eval("[...document.querySelectorAll('summary')].find((s) => s.innerText.includes('JSON Schema')).click()")
    set_sampling(page, "JSON Schema", "{")
    page.click_text("button", "As curl")
    page.wait_text("dialog[open] .error-box", "JSON Schema")
    page.click_text("button", "Close", "dialog[open]")
    page.wait("[...document.querySelectorAll('button')].find((b) => b.innerText === 'Stop').getClientRects().length > 0")
    assert "Running" in page.text(".run-state")
    page.type(label_of(page, "JSON Schema"), "")
    ends_whole(page, stack, job_id)


def test_sending_ends(page, stack, proxy):
    """By Stop, and by itself: a service that does not say in 75 s whether it has the job is not reachable."""
    page.call("Page.addScriptToEvaluateOnNewDocument", source=CLOCK)
    asked, ended = threading.Semaphore(0), threading.Event()

    def in_the_way(handler):
        if handler.command != "POST":
            return False
        asked.release()
        return ended.wait(HANG_S)

    page.open(proxy.url)
    page.wait("document.querySelector('select')?.options.length === 2")
    proxy.in_the_way = in_the_way
    run_prompt(page)
    assert asked.acquire(timeout=HANG_S)
    page.click_text("button", "Stop")
    page.wait_text(".run-state", "Stopped")
    page.click_text("button", "Run")
    assert asked.acquire(timeout=HANG_S)
    page.eval("pass_time(75000)")
    page.wait_text(".result .error-box", "UNREACHABLE")
    assert "under Jobs" in page.text(".run-state")
    ended.set()
    proxy.in_the_way = None
    page.click_text("button", "Run")
    page.wait_text(".run-state", "Completed")


@pytest.mark.parametrize("answer", ("none", "a proxy's", "the service's"))
def test_a_job_that_the_service_may_have_is_under_jobs(page, stack, proxy, answer):
    def in_the_way(handler):
        if handler.command != "POST":
            return False
        if answer == "a proxy's":
            handler.answer(504, b"<html>Gateway Timeout</html>", "text/html")
        return refuse_jobs(handler) if answer == "the service's" else True

    page.open(proxy.url)
    page.wait("document.querySelector('select')?.options.length === 2")
    proxy.in_the_way = in_the_way
    run_prompt(page)
    page.wait_text(".result .error-box", {"none": "UNREACHABLE", "a proxy's": "HTTP_504", "the service's": "QUEUE_FULL"}[answer])
    assert ("under Jobs" in page.text(".run-state")) == (answer != "the service's")


def test_what_failed_about_stop_stays(page, stack, proxy):
    """While the job waits, and while its tokens come."""
    stack.gate.hold()
    ended, looks = threading.Event(), []

    def in_the_way(handler):
        if handler.path.endswith("/cancel"):
            error = {"code": "INTERNAL", "message": "it cannot be stopped", "retriable": False}
            handler.answer(500, json.dumps({"error": error}).encode(), "application/json")
            return True
        if handler.path.endswith("/events"):
            return not ended.is_set() and ended.wait(HANG_S)
        if handler.command == "GET" and handler.path.startswith("/v2/tasks/"):
            looks.append(handler.path)
        return False

    page.open(proxy.url)
    page.wait("document.querySelector('select')?.options.length === 2")
    proxy.in_the_way = in_the_way
    run_prompt(page)
    page.wait_text(".run-state", "Queued")
    page.click_text("button", "Stop")
    page.wait_text(".run-state", "it cannot be stopped")
    before = len(looks)
    wait_for("more looks at the job", lambda: len(looks) > before + 2)
    assert "it cannot be stopped" in page.text(".run-state")
    ended.set()
    stack.gate.let_pass(3)
    page.wait("document.querySelector('.turn-plain')?.innerText.length > 2")
    assert "it cannot be stopped" in page.text(".run-state")
    proxy.in_the_way = None
    stack.gate.open()
    page.wait_text(".run-state", "Completed")
    assert "stopped" not in page.text(".run-state")


def test_a_job_older_than_the_list_is_shown_as_it_is_now(page, stack, proxy):
    """The list has two jobs and says so; a link leads to one that it has no more."""

    def in_the_way(handler):
        if handler.path.startswith("/v2/tasks?"):
            handler.path = "/v2/tasks?limit=2"
        return False

    proxy.in_the_way = in_the_way
    stack.gate.hold()
    jobs = [stack.submit(max_tokens=20)["job_id"] for _ in range(4)]
    stack.wait_running(jobs[0])
    page.open(f"{proxy.url}/#/jobs/{jobs[1]}")
    page.wait("['queued', 'running'].includes(document.querySelector('.detail').dataset.state)")
    page.click_text("button", "Cancel job")
    page.wait("document.querySelector('.detail').dataset.state === 'cancelled'")
    page.go(f"jobs/{jobs[0]}")
    page.wait("document.querySelector('.detail').dataset.state === 'running'")
    stack.gate.open()
    page.wait("document.querySelector('.detail').dataset.state === 'completed'")
    assert "The newest 2 jobs" in page.text(".toolbar")
    proxy.in_the_way = None
    page.wait("!document.querySelector('.toolbar').innerText.includes('newest')")
    for job_id in jobs:
        stack.wait_terminal(job_id)


@pytest.fixture
def chat_proxy(chat_stack):  # noqa: F811
    with Proxy(chat_stack.url) as running:
        yield running
    chat_stack.gate.open()


def refuse_jobs(handler):
    """As orchestratord does when its queue is full: in its own envelope, or in the OpenAI API's."""
    if handler.command != "POST" or not handler.path.startswith(("/v2/tasks", "/v1/chat/completions")):
        return False
    own = {"code": "QUEUE_FULL", "message": "the queue is full", "retriable": True, "retry_after_ms": 1000}
    theirs = {"message": own["message"], "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded", "llorch": own}
    handler.answer(429, json.dumps({"error": own if handler.path.startswith("/v2/") else theirs}).encode(), "application/json")
    return True


def turns_on_screen(page):
    return page.eval("[...document.querySelectorAll('.output .turn-role')].map((e) => e.textContent)")


def message_typed(page):
    return page.eval(f"document.querySelector('{label_of(page, 'Message')}').value")


def test_sending_with_tools_ends(page, chat_stack, chat_proxy):  # noqa: F811
    """By itself, where no answer begins in 75 s. One that has begun may take as long as it likes."""
    page.call("Page.addScriptToEvaluateOnNewDocument", source=CLOCK)
    asked, ended = threading.Semaphore(0), threading.Event()

    def in_the_way(handler):
        if handler.command != "POST":
            return False
        asked.release()
        return ended.wait(HANG_S)

    start_chat(page, chat_proxy)
    page.eval("document.querySelector('.tools summary').click()")
    page.click_text("button", "Example")
    choose(page, "Calls", "none")
    page.type(label_of(page, "Message"), "hello")
    chat_proxy.in_the_way = in_the_way
    page.click_text("button", "Send")
    assert asked.acquire(timeout=HANG_S)
    page.eval("pass_time(75000)")
    page.wait_text(".result .error-box", "UNREACHABLE")
    assert "under Jobs" in page.text(".run-state") and message_typed(page) == "hello"
    ended.set()
    chat_proxy.in_the_way = None
    chat_stack.gate.hold()
    page.click_text("button", "Send")
    chat_stack.gate.let_pass(2)
    page.wait("document.querySelector('.run-state').dataset.state === 'running'")
    page.eval("pass_time(75000)")
    chat_stack.gate.open()
    page.wait_text(".run-state", "Completed")


@pytest.mark.parametrize("tools", (False, True))
def test_a_message_that_has_no_answer_can_be_sent_again(page, chat_stack, chat_proxy, tools):  # noqa: F811
    start_chat(page, chat_proxy)
    if tools:
        page.eval("document.querySelector('.tools summary').click()")
        page.click_text("button", "Example")
        choose(page, "Calls", "none")
    page.type(label_of(page, "Message"), "hello")
    chat_proxy.in_the_way = refuse_jobs
    page.click_text("button", "Send")
    page.wait_text(".result .error-box", "QUEUE_FULL")
    assert (turns_on_screen(page), message_typed(page)) == ([], "hello")
    chat_proxy.in_the_way = None
    chat_stack.gate.hold()
    page.click_text("button", "Send")
    page.wait(f"document.querySelectorAll('.turn-user').length === 1 && document.querySelector('{label_of(page, 'Message')}').value === ''")
    page.type(label_of(page, "Message"), "and more")
    page.click_text("button", "Stop")
    page.wait_text(".run-state", "Stopped")
    assert (turns_on_screen(page), message_typed(page)) == ([], "hello\nand more")
    chat_stack.gate.open()
    page.click_text("button", "Send")
    page.wait_text(".run-state", "Completed")
    assert (turns_on_screen(page), message_typed(page)) == (["user", "assistant"], "")


def test_results_of_tools_that_have_no_answer_can_be_sent_again(page, chat_stack, chat_proxy):  # noqa: F811
    start_chat(page, chat_proxy)
    page.eval("document.querySelector('.tools summary').click()")
    offer_a_tool(page)
    page.type(label_of(page, "Message"), "what is the weather?")
    page.click_text("button", "Send")
    page.wait_text(".run-state", "Completed")
    page.type(label_of(page, "Result of weather"), '{"sky": "clear"}')
    choose(page, "Calls", "none")
    set_sampling(page, "Max tokens", "12")
    chat_proxy.in_the_way = refuse_jobs
    page.click_text("button", "Send results")
    page.wait_text(".result .error-box", "QUEUE_FULL")
    assert turns_on_screen(page) == ["user", "assistant"]
    chat_proxy.in_the_way = None
    page.click_text("button", "Send results")
    page.wait("document.querySelectorAll('.turn').length === 4 && document.querySelector('.run-state').innerText.includes('Completed')")
    assert '{"sky": "clear"}' in page.text(".turn-tool")


def test_a_pull_is_followed_over_answers_that_fail(page, tmp_path):
    with ModelServer() as server, Stack({"models.cache_dir": str(tmp_path), "models.pull.allowed_hosts": "127.0.0.1"}) as own, Proxy(own.url) as proxy:
        item = server.add("/tale.gguf", MODEL.read_bytes())
        item.hold_after = 1 << 20
        asked = threading.Semaphore(0)

        def in_the_way(handler):
            if handler.path != "/v2/catalog/models/my-tale":
                return False
            handler.answer(502, b"<html>Bad Gateway</html>", "text/html")
            asked.release()
            return True

        page.open(f"{proxy.url}/#/models")
        page.type(label_of(page, "Pull a model"), f"{server.url}/tale.gguf")
        page.type(label_of(page, "Name it"), "my-tale")
        page.click_text("button", "Pull", ".pull")
        page.wait_text(".pull .outcome", "fetching")
        proxy.in_the_way = in_the_way
        assert asked.acquire(timeout=HANG_S) and asked.acquire(timeout=15), "it asks again"
        assert "fetching" in page.text(".pull .outcome")
        proxy.in_the_way = None
        item.go_on.set()
        page.wait_text(".pull .outcome", "my-tale is here.")


def use_token(page, token):
    page.wait("document.getElementById('login').open")
    page.type("#login-token", token)
    page.click_text("button", "Use token")


def test_a_job_goes_on_with_another_token(page, guarded_stack):
    def in_the_way(handler):
        if "Authorization" in handler.headers:
            handler.headers.replace_header("Authorization", f"Bearer {'x' * 40}")
        return False

    with Proxy(guarded_stack.url) as proxy:
        page.open(proxy.url)
        use_token(page, TOKEN)
        page.wait_text("#health", "healthy")
        job_id = begin_held(page, proxy.url, guarded_stack)
        before = page.text(".turn-plain")
        proxy.in_the_way = in_the_way
        proxy.cut()
        page.wait_text("#login", "That token is not known here")
        page.wait_text(".run-state", "once a token is given")
        assert page.text(".turn-plain") == before
        assert page.eval("sessionStorage.getItem('llorch-running-job')") == job_id
        proxy.in_the_way = None
        use_token(page, TOKEN)
        guarded_stack.gate.open()
        page.wait_text(".run-state", "Completed")
        sha256 = guarded_stack.job(job_id)["receipt"]["output_sha256"]
        assert hashlib.sha256(page.text(".turn-plain").encode()).hexdigest() == sha256


@pytest.mark.parametrize("is_reloaded", (False, True))
def test_a_job_that_waits_for_a_token_is_left_and_cleared(page, guarded_stack, is_reloaded):
    """Stop cannot reach it, but takes it off the page; nothing is asked meanwhile. The job itself goes on."""
    is_lost = threading.Event()

    def in_the_way(handler):
        if is_lost.is_set() and "Authorization" in handler.headers:
            handler.headers.replace_header("Authorization", f"Bearer {'x' * 40}")
        if handler.command == "POST" and handler.path == "/v2/tasks":
            is_lost.set()
        return False

    page.call("Page.addScriptToEvaluateOnNewDocument", source=QUICK_LOOKS)
    with Proxy(guarded_stack.url) as proxy:
        page.open(proxy.url)
        use_token(page, TOKEN)
        page.wait_text("#health", "healthy")
        page.wait("document.querySelector('select')?.options.length === 2")
        guarded_stack.gate.hold()
        proxy.in_the_way = in_the_way
        run_prompt(page)
        page.wait_text(".run-state", "once a token is given")
        job_id = page.eval("sessionStorage.getItem('llorch-running-job')")
        if is_reloaded:
            page.call("Page.reload")
            page.wait_text(".run-state", "once a token is given")
        page.click_text("button", "Not now")
        asked, looks = page.wait("looks > 5 && [asked, looks]")
        assert page.wait(f"looks > {looks + 5} && [asked]") == [asked]
        page.click_text("button", "Stop")
        page.wait_text(".run-state", "may run on")
        assert "Stopped" in page.text(".run-state") and not page.eval("sessionStorage.getItem('llorch-running-job')")
        page.click_text("button", "Clear")
        page.wait_text(".output", "Nothing has been asked yet")
    assert guarded_stack.job(job_id)["status"] in ("queued", "running")
    guarded_stack.gate.open()
    guarded_stack.wait_terminal(job_id)


def test_a_late_refusal_of_a_token_leaves_a_newer_one(page, guarded_stack):
    held, go_on, gone = threading.Event(), threading.Event(), threading.Event()

    def in_the_way(handler):
        if handler.path.startswith("/v2/catalog/models") and "x" * 40 in handler.headers.get("Authorization", ""):
            held.set()
            go_on.wait(HANG_S)
            proxy.hand_on(handler)
            gone.set()
            return True
        return False

    with Proxy(guarded_stack.url) as proxy:
        proxy.in_the_way = in_the_way
        page.open(proxy.url)
        use_token(page, "x" * 40)
        assert held.wait(HANG_S)
        page.wait_text("#login", "That token is not known here")
        use_token(page, TOKEN)
        page.wait_text("#health", "healthy")
        # The newer token's own answer, however late the other one is.
        page.wait("document.querySelector('select')?.options.length === 2")
        go_on.set()
        assert gone.wait(HANG_S)
        page.eval("fetch('/v2/health').then((r) => r.text())")  # behind the refusal
        assert page.eval("sessionStorage.getItem('llorch-token')") == TOKEN
        assert not page.eval("document.getElementById('login').open")


def test_what_a_token_has_shown_goes_with_it(page, guarded_stack):
    page.open(f"{guarded_stack.url}/#/settings")
    use_token(page, TOKEN)
    page.wait_text(".settings", "orchestratord.queue.capacity")
    page.click_text("button", "Forget token")
    page.wait("document.getElementById('login').open")
    assert page.text(".settings tbody") == ""
    use_token(page, READER)
    page.wait_text(".error-box", "FORBIDDEN")
    assert page.text(".settings tbody") == ""
    page.go("pools")  # a reader may see them
    page.wait_text(".pool", "healthy")
    assert json.loads(page.eval("JSON.stringify(Object.keys(sessionStorage))")) == ["llorch-token"]
