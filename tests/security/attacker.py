"""Requests with any header. Standard library only."""

import hashlib
import hmac
import http.client
import http.server
import json
import threading
import urllib.parse

from stack import HANG_S, Response

OPERATOR = "o" * 40
READER = "r" * 40
TENANTS = {"alice": "a" * 40, "bob": "b" * 40}
JSON = {"Content-Type": "application/json"}


class Node:
    """The tokens that follow from a pool's credential."""

    def __init__(self, text):
        self.text = text
        self.pool_id, secret = text.strip().split(":")
        self.secret = bytes.fromhex(secret)

    def _token(self, label):
        return hmac.new(self.secret, f"llorch/1 {label} {self.pool_id}".encode(), hashlib.sha256).hexdigest()

    @property
    def token(self):
        return self._token("pool to orchestratord")

    @property
    def control(self):
        return self._token("to pool and worker")

    @property
    def worker(self):
        return self._token("worker to pool")


def secret(directory, name, text):
    path = directory / name
    path.write_text(text + "\n")
    path.chmod(0o600)
    return path


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def send(url, method, path, body=None, headers=None, timeout_s=HANG_S):
    """One request with exactly these headers; Host and the body's length are added unless given."""
    parsed = urllib.parse.urlsplit(url)
    headers = dict(headers or {})
    if isinstance(body, (dict, list)):
        body = json.dumps(body)
    body = body.encode() if isinstance(body, str) else body
    connection = http.client.HTTPConnection(parsed.hostname, parsed.port, timeout=timeout_s)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        raw = connection.getresponse()
        return Response(raw.status, {k.lower(): v for k, v in raw.getheaders()}, raw.read())
    finally:
        connection.close()


def first_bytes(url, path, headers=None, timeout_s=HANG_S):
    """The status of an answer whose body may never end."""
    parsed = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parsed.hostname, parsed.port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers=headers or {})
        return connection.getresponse().status
    finally:
        connection.close()


class Listener:
    """Keeps every request it gets, with all headers, and answers with what it is told to."""

    def __init__(self, host="127.0.0.1"):
        self.requests = []
        self.answer = lambda handler: (500, {}, b"{}")
        listener = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                listener.requests.append((self.command, self.path, dict(self.headers), body))
                status, headers, reply = listener.answer(self)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            do_POST = do_DELETE = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((host, 0), Handler)
        self.url = f"http://{host}:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def tokens(self):
        return {headers["Authorization"].removeprefix("Bearer ") for _, _, headers, _ in self.requests
                if "Authorization" in headers}
