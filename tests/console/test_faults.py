"""What the console does when orchestratord, or a proxy before it, fails or answers late."""

import threading

import pytest
from proxy import Proxy
from stack import HANG_S
from test_controls import label_of, run_prompt, set_sampling


@pytest.fixture
def proxy(stack):
    with Proxy(stack.url) as running:
        yield running
    stack.gate.open()


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
