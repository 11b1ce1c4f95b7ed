"""A thousand jobs and sixty-four workers on screen: the list scrolls at the display's rate, by the browser's own trace."""

import json

import pytest

from stack import Stack, wait_for

JOBS = 1000
SCROLLS = 120


@pytest.fixture(scope="module")
def crowded_stack():
    """A thousand jobs of which one runs, held by the gate."""
    settings = {"orchestratord.queue.capacity": str(JOBS + 10), "orchestratord.worker_slots": "1"}
    with Stack(settings) as stack:
        stack.gate.hold()
        for seed in range(JOBS):
            stack.submit(prompt="x", max_tokens=8, seed=seed)
        wait_for("a job to run", lambda: any(j["status"] == "running" for j in stack.request("GET", "/v2/tasks?limit=1000").json["tasks"]))
        yield stack


def frames_of(events):
    """Times in ms between frames that were drawn, and the long tasks, of a trace."""
    drawn = sorted(e["ts"] / 1000 for e in events if e["name"] == "DrawFrame")
    tasks = [e["dur"] / 1000 for e in events if e["name"] == "RunTask" and e.get("dur", 0) > 50_000]
    return [b - a for a, b in zip(drawn, drawn[1:])], tasks


def test_a_thousand_jobs_scroll(page, crowded_stack, record_property):
    page.open(f"{crowded_stack.url}/#/jobs")
    page.wait(f"document.querySelector('[data-filter=all] b').innerText.replace(/\\D/g, '') === '{JOBS}'")
    assert page.eval("document.querySelectorAll('.job').length") < 80, "only what is seen is there"
    page.wait(f"document.querySelector('.job[aria-posinset=\"1\"]')?.getAttribute('aria-setsize') === '{JOBS}'")

    def scroll():
        page.eval(f"""new Promise((resolve) => {{
            const list = document.querySelector('.list'); let n = 0; window.frames60 = [];
            const step = (at) => {{
                window.frames60.push(at); list.scrollTop += 300;
                if (list.scrollTop + list.clientHeight >= list.scrollHeight - 1) list.scrollTop = 0;
                if (++n < {SCROLLS}) requestAnimationFrame(step); else resolve();
            }};
            requestAnimationFrame(step); }})""")

    events = page.trace(scroll, ["devtools.timeline", "disabled-by-default-devtools.timeline", "disabled-by-default-devtools.timeline.frame"])
    between, tasks = frames_of(events)
    animation = page.eval("window.frames60")
    gaps = sorted(b - a for a, b in zip(animation, animation[1:]))
    script = sorted(e["dur"] / 1000 for e in events if e["name"] == "FireAnimationFrame" and "dur" in e)
    layout = sum(e.get("dur", 0) for e in events if e["name"] in ("Layout", "UpdateLayoutTree")) / 1000
    figures = {"frames": len(animation), "frame_ms_median": gaps[len(gaps) // 2], "frame_ms_p95": gaps[int(len(gaps) * 0.95)],
               "drawn": len(between) + 1, "script_ms_p95": script[int(len(script) * 0.95)] if script else None,
               "layout_ms_per_frame": layout / len(animation), "tasks_over_50_ms": len(tasks)}
    print(json.dumps(figures))
    record_property("scrolling", figures)
    assert len(animation) == SCROLLS
    # At the end of the list its last job stands, and the keyboard gets there as well.
    page.eval("document.querySelector('.list').focus()")
    page.key("End")
    page.wait(f"document.querySelector('.job[aria-selected=true]')?.getAttribute('aria-posinset') === '{JOBS}'")
    page.key("Home")
    page.wait("document.querySelector('.job[aria-selected=true]')?.getAttribute('aria-posinset') === '1'")


def test_sixty_four_workers_are_on_screen(page, crowded_stack):
    """What /v2/pools says is replaced on its way to the page: 8 pools of 8 devices and 8 workers."""
    pool = crowded_stack.pools()[0]
    wait_for("a worker to tell its memory", lambda: crowded_stack.pools()[0]["workers"][0].get("memory_by_device"))
    worker, device = crowded_stack.pools()[0]["workers"][0], pool["gpus"][0]
    pools = [{**pool, "pool_id": f"pool-{p}", "gpus": [{**device, "gpu_id": str(d)} for d in range(8)],
              "workers": [{**worker, "worker_id": f"worker-{p}-{d}", "gpu_id": str(d)} for d in range(8)]} for p in range(8)]
    page.open(crowded_stack.url)
    page.eval(f"""(() => {{ const real = fetch; window.fetch = (path, options) => path === '/v2/pools'
        ? Promise.resolve(new Response({json.dumps(json.dumps({'pools': pools}))})) : real(path, options); }})()""")
    page.go("pools")
    page.wait("document.querySelectorAll('.workers tbody tr').length === 64 && document.querySelectorAll('.memory:not(.enlarged)').length === 64")


def test_the_first_paint(browser, crowded_stack, record_property):
    """From the request of the page to its first picture, nothing cached."""
    page = browser.page()
    page.open(f"{crowded_stack.url}/#/jobs")
    page.wait("performance.getEntriesByName('first-contentful-paint').length === 1")
    figures = page.eval("""(() => { const paint = performance.getEntriesByName('first-contentful-paint')[0].startTime;
        const files = performance.getEntriesByType('resource').filter((r) => !r.name.includes('/v2/') && !r.name.includes('/metrics'));
        return {first_contentful_paint_ms: paint, files: files.length + 1, foreign: files.filter((r) => !r.name.startsWith(location.origin)).length}; })()""")
    print(json.dumps(figures))
    record_property("first_paint", figures)
    assert figures["foreign"] == 0
    assert page.complaints == []
    page.close()
