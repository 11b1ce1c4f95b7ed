"""A headless Chromium that tests drive over its debugging pipe (Chrome DevTools Protocol). Standard library only."""

import base64
import contextlib
import json
import os
import pathlib
import queue
import shutil
import subprocess
import tempfile
import threading

from stack import HANG_S, wait_for

CHROMIUM = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)

KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "PageUp": 33, "PageDown": 34, "End": 35, "Home": 36, "ArrowUp": 38, "ArrowDown": 40}


class ProtocolError(RuntimeError):
    pass


class Browser:
    """Commands go out through one pipe and answers come back through another, each a JSON text that a zero byte ends."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="llorch-console-", ignore_cleanup_errors=True)
        command_read, self._commands = os.pipe()
        self._answers, answer_write = os.pipe()
        arguments = [CHROMIUM, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.directory.name}", "--no-sandbox",
                     "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
                     "--disable-background-networking", "--disable-component-update", "about:blank"]
        # The browser reads commands from descriptor 3 and writes to 4.
        shell = f'exec 5<&{command_read} 6>&{answer_write} 3<&5 4>&6 5<&- 6>&-; exec "$@"'
        self.process = subprocess.Popen(["/bin/bash", "-c", shell, "chromium", *arguments], pass_fds=(command_read, answer_write),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(command_read)
        os.close(answer_write)
        self._last_id = 0
        self._waiting = {}
        self._lock = threading.Lock()
        self.sessions = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        rest = b""
        while chunk := os.read(self._answers, 1 << 20):
            *messages, rest = (rest + chunk).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._waiting.pop(message["id"]).put(message)
                elif listener := self.sessions.get(message.get("sessionId")):
                    listener(message["method"], message["params"])

    def call(self, method, session=None, **params):
        answer = queue.Queue()
        with self._lock:
            self._last_id += 1
            message = {"id": self._last_id, "method": method, "params": params, **({"sessionId": session} if session else {})}
            self._waiting[self._last_id] = answer
            os.write(self._commands, json.dumps(message).encode() + b"\0")
        reply = answer.get(timeout=HANG_S)
        if "error" in reply:
            raise ProtocolError(f"{method}: {reply['error']['message']}")
        return reply["result"]

    def page(self, width=1280, height=800, theme="light", mobile=False):
        return Page(self, width, height, theme, mobile)

    def close(self):
        with contextlib.suppress(Exception):
            self.call("Browser.close")
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._commands)
        self.directory.cleanup()


class Page:
    """One tab in a context of its own: no storage or cache is shared with another page. `complaints` holds what the browser
    found wrong: violations of the Content-Security-Policy, uncaught exceptions, console errors."""

    def __init__(self, browser, width, height, theme, mobile):
        self.browser = browser
        self.complaints = []
        self.events = queue.Queue()
        self.wanted = set()
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        self.target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        browser.sessions[self.session] = self._on_event
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source="""
            addEventListener("securitypolicyviolation", (e) => console.error("CSP", e.violatedDirective, e.blockedURI, e.sourceFile, e.lineNumber));
        """)
        self.resize(width, height, mobile)
        self.theme(theme)

    def _on_event(self, method, params):
        if method == "Log.entryAdded" and params["entry"]["level"] == "error":
            # A refused request is a line of the browser's own; the page shows it in words.
            if params["entry"]["source"] != "network":
                self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"].get("exception", {}).get("description", str(params)))
        elif method == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.complaints.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        if method in self.wanted:
            self.events.put((method, params))

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def resize(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def theme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && document.querySelector('main').children.length > 0", f"{url} to open")

    def eval(self, expression):
        reply = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in reply:
            raise ProtocolError(f"{expression}: {reply['exceptionDetails'].get('exception', {}).get('description')}")
        return reply["result"].get("value")

    def wait(self, condition, what=None):
        def holds():
            with contextlib.suppress(ProtocolError):  # a page that is being loaded has no document yet
                return self.eval(condition)
            return None

        return wait_for(what or condition, holds, timeout_s=15, every_s=0.05)

    def text(self, selector="main"):
        return self.eval(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def wait_text(self, selector, text):
        self.wait(f"(document.querySelector({json.dumps(selector)})?.innerText ?? '').includes({json.dumps(text)})",
                  f"{text!r} in {selector}")

    def go(self, view):
        self.eval(f"location.hash = '#/{view}'")
        self.wait(f"document.querySelector('main').className === 'view-{view.split('/')[0]}'")

    def click(self, selector):
        """Where a user would: in the middle of what is seen of it."""
        find = f"document.querySelector({json.dumps(selector)})"
        self.wait(f"{find} && !{find}.disabled && {find}.getClientRects().length > 0", f"{selector} to be there")
        at = self.eval(f"(() => {{ const e = {find}; e.scrollIntoView({{block: 'nearest'}}); const b = e.getBoundingClientRect();"
                       " return [b.x + b.width / 2, b.y + b.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    def click_text(self, tag, text, within="body"):
        """The element of this tag that shows exactly this text."""
        found = self.wait(f"""(() => {{
            for (const e of document.querySelectorAll({json.dumps(f'{within} {tag}')})) {{
                if (e.innerText.trim().toLowerCase() === {json.dumps(text.lower())} && e.getClientRects().length) {{
                    document.querySelectorAll('[data-clicked]').forEach((o) => o.removeAttribute('data-clicked'));
                    e.dataset.clicked = ''; return true;
                }}
            }}
            return false; }})()""", f"{tag} {text!r}")
        assert found
        self.click("[data-clicked]")

    def type(self, selector, text):
        self.eval(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.select?.(); }})()")
        if text:
            self.call("Input.insertText", text=text)
        else:
            self.key("Backspace", code=8)

    def key(self, key, code=None, modifiers=0):
        code = code or KEYS.get(key, 0)
        text = {"Enter": "\r", " ": " "}.get(key)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, modifiers=modifiers,
                      **({"text": text} if text and kind == "keyDown" and not modifiers else {}))

    def screenshot(self, path):
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def trace(self, action, categories):
        """The trace events of what `action()` does."""
        self.browser.sessions[None] = self._on_event
        self.wanted = {"Tracing.dataCollected", "Tracing.tracingComplete"}
        self.call("Tracing.start", transferMode="ReportEvents", traceConfig={"includedCategories": categories})
        action()
        self.call("Tracing.end")
        out = []
        while True:
            method, params = self.events.get(timeout=HANG_S)
            if method == "Tracing.tracingComplete":
                break
            out += params["value"]
        self.wanted = set()
        return out

    def close(self):
        with contextlib.suppress(ProtocolError):
            self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)
        self.browser.sessions.pop(self.session, None)
