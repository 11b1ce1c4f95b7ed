"""A server in orchestratord's place that says what a test wants it to say. Standard library only."""

import http.server
import json
import threading

END = {"tokens_in": 1, "tokens_out": 1, "decode_time_ms": 1, "first_token_ms": 1, "stop_reason": "eos", "budget": {}}


class SaidServer:
    """`tokens`: the texts of every job's tokens. `answers`: bodies of other paths, or what makes one of the query; a text is the code of an
    error, a tuple that and its details. `refused`: the numbers of the jobs that are not taken, or these with the code and the details of each.
    `asked`: what came, as (path, bearer, body)."""

    def __init__(self, tokens=(), answers=None, host="127.0.0.1", port=0):
        self.tokens = list(tokens)
        self.answers = answers or {}
        self.refused = set()
        self.jobs = 0
        self.asked = []
        said = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                path, _, query = self.path.partition("?")
                said.note(self, b"")
                if path.endswith("/events"):
                    self.answer(200, said.stream(), "text/event-stream")
                elif path in said.answers:
                    answer = said.answers[path]
                    answer = answer(query) if callable(answer) else answer
                    if isinstance(answer, (str, tuple)):
                        return self.error(*([answer] if isinstance(answer, str) else answer))
                    self.answer(200, json.dumps(answer).encode())
                else:
                    self.error("NOT_FOUND")

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                said.note(self, body)
                said.jobs += 1
                if said.jobs - 1 in said.refused:
                    why = said.refused[said.jobs - 1] if isinstance(said.refused, dict) else ("POOL_UNAVAILABLE",)
                    return self.error(*why, status=503)
                self.answer(202, json.dumps({
                    "job_id": "j", "task_id": "j", "status": "queued", "queue_position": 0, "predicted_start_ms": 0, "backoff_ms": 0,
                    "events_url": "/v2/tasks/j/events", "budget": {}}).encode())

            def error(self, code, details=None, status=404):
                error = {"code": code, "message": "no \x1b]52;c;aGk=\x07 of this", "details": details or {}, "retriable": False, "correlation_id": ""}
                self.answer(status, json.dumps({"error": error}).encode())

            def answer(self, status, body, kind="application/json"):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((host, port), Handler)
        self.bind = f"{host}:{self.server.server_port}"
        self.url = f"http://{self.bind}"
        self.thread = threading.Thread(target=self.server.serve_forever)

    def note(self, handler, body):
        self.asked.append((handler.path, handler.headers.get("Authorization"), json.loads(body or b"null")))

    def stream(self):
        events = [("started", {"job_id": "j", "seed": 1})] + [("token", {"t": text, "i": number}) for number, text in enumerate(self.tokens)] + [("end", {"job_id": "j", **END})]
        return "".join(f"id: {n}\nevent: {name}\ndata: {json.dumps(data)}\n\n" for n, (name, data) in enumerate(events)).encode()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
