"""Every view at three sizes and in both themes: a picture of each in build/console-screenshots, and what people need who do not see
it well: contrast, names, order of focus, nothing wider than the window."""

import json
import pathlib

import pytest

from conftest import SCREENSHOTS
from stack import OFTEN_HEARD, Stack

CHECK = (pathlib.Path(__file__).parent / "accessibility.js").read_text()
SIZES = {"wide": (1440, 900, False), "tablet": (900, 1100, False), "phone": (390, 844, True)}
# When a view shows what it has to show.
READY = {"playground": "document.querySelector('select')?.options.length === 2 && !document.querySelector('button.main').disabled",
         "jobs": "document.querySelectorAll('.job').length > 8",
         "pools": "document.querySelectorAll('.memory .part').length >= 7", "models": "document.querySelectorAll('.fits tr').length === 2",
         "plots": "document.querySelectorAll('.line[d*=L]').length >= 2", "settings": "document.querySelectorAll('.settings tr').length > 60",
         "about": "document.querySelectorAll('.about td').length > 10"}


@pytest.fixture(scope="module")
def busy_stack():
    """Jobs of every status: completed, cancelled, one that runs, several that wait. Two models, both loaded."""
    settings = {**OFTEN_HEARD, "pool-managerd.worker_health_interval_ms": "200",
                "orchestratord.limits.workers_per_gpu": "2", "orchestratord.worker_slots": "2"}
    with Stack(settings) as stack:
        for seed in range(6):
            stack.wait_terminal(stack.submit(prompt="Once upon a time there was", max_tokens=24 + seed, seed=seed)["job_id"])
        stack.wait_terminal(stack.submit(model="demo-f16", max_tokens=8)["job_id"])
        stack.gate.hold()
        held = [stack.submit(max_tokens=60)["job_id"] for _ in range(7)]
        stack.wait_running(held[0])
        stack.request("POST", f"/v2/tasks/{held[-1]}/cancel", {})
        stack.held = held
        yield stack


@pytest.mark.parametrize("theme", ("light", "dark"))
@pytest.mark.parametrize("size", SIZES)
def test_every_view(browser, busy_stack, size, theme):
    width, height, mobile = SIZES[size]
    page = browser.page(width, height, theme, mobile)
    page.open(busy_stack.url)
    page.wait_text("#health", "healthy")
    for view in READY:
        page.go(view)
        page.wait(READY[view])
        page.screenshot(SCREENSHOTS / f"{view}-{size}-{theme}.png")
        assert page.eval(CHECK) == [], (view, size, theme)
    page.go(f"jobs/{busy_stack.held[2]}")
    page.wait_text(".detail", "WAITING_FOR_")
    page.screenshot(SCREENSHOTS / f"job-{size}-{theme}.png")
    assert page.eval(CHECK) == []
    page.go(f"jobs/{busy_stack.request('GET', '/v2/tasks?limit=1000').json['tasks'][-1]['job_id']}")
    page.wait("document.querySelector('.detail').dataset.state === 'completed'")
    page.screenshot(SCREENSHOTS / f"job-ended-{size}-{theme}.png")
    assert page.eval(CHECK) == []
    assert page.complaints == []
    page.close()


def test_a_long_name_breaks_on_a_phone(browser, busy_stack):
    page = browser.page(*SIZES["phone"][:2], mobile=True)
    job = busy_stack.submit(max_tokens=1, task_id="t" * 256)["job_id"]
    page.open(f"{busy_stack.url}/#/jobs/{job}")
    page.wait_text(".detail h2", "ttt")
    assert page.eval("(() => { const e = document.querySelector('.detail'); return e.scrollWidth <= e.clientWidth; })()")
    busy_stack.request("POST", f"/v2/tasks/{job}/cancel", {})
    assert page.complaints == []
    page.close()


@pytest.mark.parametrize("theme", ("light", "dark"))
def test_a_result_and_a_refusal(browser, theme):
    page = browser.page(theme=theme)
    with Stack() as stack:
        page.open(stack.url)
        page.wait("!document.querySelector('button.main').disabled")
        page.click_text("button", "Run")
        page.wait_text(".run-state", "Completed")
        page.click(".receipt summary")
        page.click_text("button", "Verify")
        page.wait_text(".verified", "Same bytes.")
        page.screenshot(SCREENSHOTS / f"result-{theme}.png")
        assert page.eval(CHECK) == []
        page.eval("document.querySelector('.sampling input').value = '999999'")
        page.wait("!document.querySelector('button.main').disabled")
        page.eval("void scrollTo(0, 0)")
        page.click_text("button", "Run")
        page.wait_text(".error-box", "INVALID_PARAMS")
        page.screenshot(SCREENSHOTS / f"refusal-{theme}.png")
        assert page.eval(CHECK) == []
        page.go("jobs")
        page.type(".toolbar input", "nothing has this id")
        page.wait_text(".empty", "No job matches")
        assert page.eval(CHECK) == []
        page.go("pools")
        page.click_text("button", "Purge …")
        page.wait("document.querySelector('dialog[open]') !== null")
        page.screenshot(SCREENSHOTS / f"dialog-{theme}.png")
        assert page.eval(CHECK) == []
    assert page.complaints == []
    page.close()


@pytest.mark.parametrize("view", READY)
def test_the_tab_key_reaches_every_control_in_the_order_seen(page, busy_stack, view):
    """And shows where it is. Radios are one stop, as everywhere."""
    page.open(f"{busy_stack.url}/#/{view}")
    page.wait(READY[view])
    wanted = page.eval("""[...document.querySelectorAll(`body > a, header a, header button, main a, main button, main input, main select, main textarea,
        main summary, main [tabindex="0"]`)].filter((e) => e.checkVisibility() && !e.disabled
        && !(e.type === 'radio' && !e.checked)).length""")
    page.eval("document.activeElement.blur()")
    stops = []
    for _ in range(wanted + 3):
        page.key("Tab")
        stop = page.eval("""(() => { const e = document.activeElement; if (e === document.body) return null;
            e.dataset.stop ??= Math.random(); const style = getComputedStyle(e);
            return [e.dataset.stop, style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2, e.tagName + ' ' + e.innerText.slice(0, 30)]; })()""")
        if stop is None or stop[0] in [s[0] for s in stops]:
            break
        stops.append(stop)
    assert len(stops) == wanted, (wanted, [s[2] for s in stops])
    assert all(visible for _, visible, _ in stops), [s[2] for s in stops if not s[1]]
    in_order = page.eval("""(() => { const order = [...document.querySelectorAll('[data-stop]')].map((e) => e.dataset.stop);
        return JSON.stringify(order); })()""")
    assert json.loads(in_order) == [s[0] for s in stops], "focus goes as the page reads"
