"""Between the page and orchestratord: hands everything on, and stands in the way of what a test names. Standard library only."""

import contextlib
import http.client
import http.server
import socket
import threading
import urllib.parse

from stack import HANG_S


class Proxy:
    """`in_the_way(handler)`, if set, is asked of each request and returns whether it has answered it by itself."""

    def __init__(self, upstream):
        self.upstream = urllib.parse.urlsplit(upstream)
        self.in_the_way = None
        self._streams = set()  # sockets of answers that are being handed on
        self._lock = threading.Lock()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with contextlib.suppress(OSError, http.client.HTTPException):  # one of the two has gone
                    if not (proxy.in_the_way and proxy.in_the_way(self)):
                        proxy.hand_on(self)

            do_POST = do_DELETE = do_GET

            def answer(self, status, body, kind):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def hand_on(self, handler):
        """The answer ends with its connection, so that its length is nobody's concern."""
        upstream = http.client.HTTPConnection(self.upstream.hostname, self.upstream.port, timeout=HANG_S)
        with contextlib.closing(upstream):
            upstream.putrequest(handler.command, handler.path, skip_host=True, skip_accept_encoding=True)
            for name, value in handler.headers.items():
                if name.lower() != "connection":
                    upstream.putheader(name, value)
            upstream.endheaders(handler.body)
            answer = upstream.getresponse()
            handler.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    handler.send_header(name, value)
            handler.end_headers()
            with self._lock:
                self._streams.add(handler.connection)
            try:
                while part := answer.read1(65536):
                    handler.wfile.write(part)
            finally:
                with self._lock:
                    self._streams.discard(handler.connection)

    def cut(self):
        """Ends the answers that are being handed on, as a proxy does whose upstream has gone."""
        with self._lock:
            for connection in self._streams:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
