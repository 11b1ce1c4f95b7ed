"""Between an adapter and a real engine: hands everything on, and does to answers what fake_engine.Fault says, so that one suite holds
for engines that cannot be told to fail. Standard library only."""

import contextlib
import http.client
import http.server
import json
import select
import socket
import threading
import urllib.parse


class FaultProxy:
    """Looks like a FakeEngine to the suite: `script`, `gate`, `disconnects`, `requests`, `down`."""

    def __init__(self, kind, upstream, model=""):
        self.kind = kind
        self.model = model
        self.upstream = urllib.parse.urlsplit(upstream)
        self.script = []
        self.lock = threading.Lock()
        self.requests = []  # (method, path, headers, body)
        self.disconnects = threading.Semaphore(0)
        self.gate = threading.Event()
        self.down = False
        proxy = self

        class Handler(_Handler):
            pass

        Handler.proxy = proxy
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # clients that go away are part of the tests
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()

    def submissions(self):
        with self.lock:
            return [json.loads(body) for method, _, _, body in self.requests if method == "POST"]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        self._take(b"")

    def do_POST(self):
        self._take(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _take(self, body):
        with self.proxy.lock:
            self.proxy.requests.append((self.command, self.path, dict(self.headers), body))
            fault = self.proxy.script.pop(0) if self.command == "POST" and self.proxy.script else None
        if self.proxy.down:
            return self._whole(503, b"{}")
        if fault is not None and fault.kind == "status":
            answer = fault.more.get("body", {"error": {"message": "no", "type": "x"}})
            return self._whole(fault.more["status"], json.dumps(answer).encode(), fault.more.get("headers", {}))
        if fault is not None and fault.kind == "close":
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        upstream = http.client.HTTPConnection(self.proxy.upstream.hostname, self.proxy.upstream.port)
        with contextlib.closing(upstream):
            headers = {"Content-Type": "application/json"} if body else {}
            upstream.request(self.command, self.path, body or None, headers)
            answer = upstream.getresponse()
            if "event-stream" not in answer.headers.get("Content-Type", ""):
                return self._whole(answer.status, answer.read())
            try:
                self._stream(answer, fault)
            except OSError:
                self.close_connection = True
                self.proxy.disconnects.release()

    def _whole(self, status, body, headers=None):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, answer, fault):
        self.send_response(answer.status)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        held, events = b"", 0
        for line in answer:
            if fault is not None and line.startswith(b"data:"):
                if events == fault.after and self._is_over(fault):
                    return
                events += 1
            if fault is not None and fault.kind == "one_chunk":
                held += line
            elif fault is not None and fault.kind == "bytes":
                for i in range(len(line)):
                    self._chunk(line[i:i + 1])
            else:
                self._chunk(line)
        if held:
            self._chunk(held)
        self._chunk(b"")

    def _is_over(self, fault):
        if fault.kind == "gate":
            while not self.proxy.gate.wait(0.005):
                readable, _, _ = select.select([self.connection], [], [], 0)
                if readable and not self.connection.recv(1, socket.MSG_PEEK):
                    raise OSError("left")
            return False
        broken = {"die": b"", "garbage": b"data: {{{ no json\n\n", "endless_line": b"data: " + b"x" * (5 << 20),
                  "bad_utf8": b'data: {"content": "\xff\xfe", "choices": [{"text": "\xff"}]}\n\n',
                  "error_event": b'data: {"error": {"message": "a secret prompt", "type": "server_error", "code": 500}}\n\n'}
        if fault.kind not in broken:
            return False
        if broken[fault.kind]:
            self._chunk(broken[fault.kind])
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_WR)  # what was sent arrives: a reset would drop it on the way
        return True

    def _chunk(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()
