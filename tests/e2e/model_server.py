"""A server of models for tests: ranges, redirects, and everything that may go wrong on the way. Standard library only."""

import contextlib
import hashlib
import http.server
import io
import json
import ssl
import threading
import time
import urllib.parse
import zipfile


class Item:
    """One file that is served."""

    def __init__(self, data):
        self.data = data
        self.etag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        self.last_modified = None
        self.takes_ranges = True
        self.failures = []  # (status, headers) of the next answers
        self.bytes_per_write = 64 << 10
        self.pause_s = 0  # after each write
        self.hold_after = None  # bytes of all answers together, after which each of more than a byte waits for `go_on`
        self.go_on = threading.Event()


class ModelServer:
    """`requests` has (path, headers) of all requests; `bytes_sent` of all bodies of `items`."""

    def __init__(self, certificate=None):
        self.items = {}  # path -> Item
        self.redirects = {}  # path -> where to
        self.documents = {}  # path (with query) -> (status, headers, body)
        self.locked = {}  # path -> what a 401 says to whoever has not the token "anybody"
        self.requests = []
        self.bytes_sent = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                with contextlib.suppress(OSError):  # whoever asked has gone
                    outer._answer(self)

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
            self.scheme = "https"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def host(self):
        return f"127.0.0.1:{self.http.server_address[1]}"

    @property
    def url(self):
        return f"{self.scheme}://{self.host}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for item in self.items.values():
            item.go_on.set()
        self.http.shutdown()
        self.http.server_close()

    def add(self, path, data):
        self.items[path] = Item(data)
        return self.items[path]

    def add_json(self, path, value, headers=None, status=200):
        self.documents[path] = (status, headers or {}, json.dumps(value).encode())

    def asked(self, path):
        return [headers for asked, headers in self.requests if asked == path]

    def _answer(self, request):
        with self._lock:
            self.requests.append((request.path, dict(request.headers.items())))
        path = urllib.parse.urlsplit(request.path).path
        if path in self.locked and request.headers.get("Authorization") != "Bearer anybody":
            return self._send(request, 401, {"WWW-Authenticate": self.locked[path]}, b"")
        if request.path in self.documents:
            status, headers, body = self.documents[request.path]
            return self._send(request, status, headers, body)
        if path in self.redirects:
            return self._send(request, 302, {"Location": self.redirects[path]}, b"")
        if path not in self.items:
            return self._send(request, 404, {}, b"")
        item = self.items[path]
        with self._lock:
            failure = item.failures.pop(0) if item.failures else None
        if failure:
            return self._send(request, failure[0], failure[1], b"")
        return self._send_item(request, item)

    def _send(self, request, status, headers, body):
        request.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    def _send_item(self, request, item):
        data, status = item.data, 200
        headers = {name: value for name, value in {"ETag": item.etag, "Last-Modified": item.last_modified}.items() if value}
        wanted = request.headers.get("Range")
        if wanted and item.takes_ranges:
            begin, end = (int(x) for x in wanted.removeprefix("bytes=").split("-"))
            headers["Content-Range"] = f"bytes {begin}-{min(end, len(data) - 1)}/{len(data)}"
            data, status = data[begin : end + 1], 206
        request.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        view = io.BytesIO(data)
        while part := view.read(item.bytes_per_write):
            if item.hold_after is not None and self.bytes_sent >= item.hold_after and len(data) > 1:
                item.go_on.wait()
            request.wfile.write(part)
            with self._lock:
                self.bytes_sent += len(part)
            time.sleep(item.pause_s)


COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """A repository as the hub serves it: a commit, a list of files in pages, large files behind a redirect to `storage`."""

    def __init__(self, server, storage, repository, files, gated_by=None):
        self.server = server
        self.repository = repository
        server.add_json(f"/api/models/{repository}/revision/main", {"sha": COMMIT})
        server.add_json(f"/api/models/{repository}/revision/{COMMIT}", {"sha": COMMIT})
        tree = f"/api/models/{repository}/tree/{COMMIT}?recursive=true"
        entries = [{"type": "file", "path": name, "size": len(data), "oid": "0" * 40,
                    "lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data)}} for name, data in files.items()]
        pages = [entries[i : i + 2] for i in range(0, len(entries), 2)]
        for number, page in enumerate(pages):
            path = tree if number == 0 else f"{tree}&cursor={number}"
            following = f"<{server.url}{tree}&cursor={number + 1}>; rel=\"next\""
            server.add_json(path, page, {"Link": following} if number + 1 < len(pages) else {})
        for name, data in files.items():
            server.redirects[f"/{repository}/resolve/{COMMIT}/{name}"] = f"{storage.url}/blobs/{name}?signature=once"
            storage.add(f"/blobs/{name}", data)


def wheel(name, data, compression=zipfile.ZIP_DEFLATED):
    """A wheel that holds one file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.writestr("package/__init__.py", "")
        archive.writestr(name, data)
    return out.getvalue()


def add_package(server, project, version, data):
    """What a package index says of a project with one wheel, and the wheel."""
    filename = f"{project.replace('-', '_')}-{version}-py3-none-any.whl"
    server.add(f"/files/{filename}", data)
    server.add_json(f"/simple/{project}/", {"files": [
        {"filename": filename, "url": f"../../files/{filename}", "size": len(data), "yanked": False,
         "upload-time": "2025-01-01T00:00:00Z", "hashes": {"sha256": hashlib.sha256(data).hexdigest()}}]})
