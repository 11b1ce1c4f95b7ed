"""Engines of other systems, as far as an adapter sees them: one server with the HTTP APIs of llama.cpp, vLLM (and with it any
server of the OpenAI API), TGI and Triton, recorded from their documentation and held to it: a field that is not there, or a value
out of range, is refused as theirs refuse it. No model: the tokens of an answer follow from prompt and seed. Faults are scripted.
Standard library only."""

import contextlib
import hashlib
import http.server
import json
import select
import socket
import ssl
import threading

CONTEXT = 512


def tokens_of(prompt, seed, count):
    """Texts of `count` tokens: the same for the same prompt and seed, with some that are no ASCII."""
    out = []
    for i in range(count):
        word = hashlib.sha256(f"{prompt}|{seed}|{i}".encode()).hexdigest()[:4]
        out.append(f" {word}" if i % 5 else f" ä{word}")
    return out


class Refused(Exception):
    def __init__(self, status, body):
        super().__init__(status)
        self.status = status
        self.body = body


class Fault:
    """What happens to one answer. `after`: tokens that come first."""

    def __init__(self, kind, after=0, **more):
        self.kind = kind
        self.after = after
        self.more = more


class FakeEngine:
    """Runs until close(). `script` holds the faults of the next answers, in order; None is an answer without one."""

    def __init__(self, kind, key=None, model="tale", version="1.2.3", eos_after=None, port=0, certificate=None,
                 host="127.0.0.1", chat_names=None):
        self.kind = kind
        self.chat_names = chat_names  # of max_tokens and seed, where it takes conversations alone and has names of its own
        self.key = key
        self.model = model
        self.version = version
        self.eos_after = eos_after  # the model stops by itself
        self.script = []
        self.lock = threading.Lock()
        self.requests = []  # (method, path, headers, body)
        self.disconnects = threading.Semaphore(0)  # one for each client that went away during an answer
        self.disconnected = 0
        self.answers = 0  # that ended as they should
        self.down = False  # 503 for everything
        self.gate = threading.Event()  # tokens of answers with the fault "gate" wait for it
        engine = self

        class Handler(_Handler):
            pass

        Handler.engine = engine
        self.server = _Server((host, port), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def close(self):
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def submissions(self):
        """Bodies of what asked for an answer."""
        with self.lock:
            return [json.loads(body) for method, path, _, body in self.requests if method == "POST"]


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        pass  # clients that go away are part of the tests


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine = None

    def log_message(self, *_):
        pass

    # What it answers.

    def do_GET(self):
        self._record(b"")
        try:
            self._check_access()
            self._json(200, self._facts())
        except Refused as refused:
            self._json(refused.status, refused.body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._record(body)
        try:
            self._check_access()
            request = json.loads(body)
            job = self._job(request)
        except Refused as refused:
            return self._json(refused.status, refused.body)
        with self.engine.lock:
            fault = self.engine.script.pop(0) if self.engine.script else None
        if fault is not None and fault.kind == "status":
            return self._json(fault.more["status"], fault.more.get("body", {"error": {"message": "no", "type": "x"}}),
                              fault.more.get("headers", {}))
        if fault is not None and fault.kind == "close":
            return self._abort()
        self._answer(job, fault)

    def _record(self, body):
        with self.engine.lock:
            self.engine.requests.append((self.command, self.path, dict(self.headers), body))

    def _check_access(self):
        if self.engine.down:
            raise Refused(503, {"error": {"message": "loading", "type": "unavailable_error", "code": 503}})
        if self.engine.key and self.headers.get("Authorization") != f"Bearer {self.engine.key}":
            raise Refused(401, {"error": {"message": "invalid key", "type": "authentication_error", "code": 401}})

    def _facts(self):
        e = self.engine
        if self.path == "/metrics":
            return {}
        known = {
            "openai": {"/v1/models": {"object": "list", "data": [{"id": e.model, "object": "model"}]}},
            "vllm": {"/health": {}, "/version": {"version": e.version},
                     "/v1/models": {"object": "list", "data": [{"id": e.model, "object": "model", "max_model_len": CONTEXT}]}},
            "llamacpp": {"/health": {"status": "ok"}, "/v1/models": {"object": "list", "data": [{"id": "/m.gguf", "aliases": [e.model]}]},
                         "/props": {"default_generation_settings": {"n_ctx": CONTEXT}, "total_slots": 4,
                                    "build_info": e.version, "model_path": "/m.gguf"}},
            "tgi": {"/health": {}, "/info": {"model_id": e.model, "version": e.version, "max_total_tokens": CONTEXT,
                                             "max_concurrent_requests": 8}},
            "triton": {"/v2": {"name": "triton", "version": e.version}, f"/v2/models/{e.model}/ready": {}},
        }[e.kind]
        if self.path not in known:
            raise Refused(404, {"error": {"message": "not found", "type": "not_found"}})
        return known[self.path]

    # What it takes.

    def _job(self, r):
        kind, path = self.engine.kind, self.path
        if path in ("/v1/completions", "/v1/chat/completions") and kind in ("openai", "vllm", "llamacpp", "tgi"):
            return self._openai_job(r, path)
        if path == "/completion" and kind == "llamacpp":
            _check(r, {"prompt": str, "stream": bool}, 400)
            if not 0 <= r.get("repeat_last_n", 64) < 2**31:
                raise Refused(400, {"error": {"code": 400, "message": "Field 'repeat_last_n': out of range",
                                              "type": "invalid_request_error"}})
            prompt_tokens = len(r["prompt"].split())
            if prompt_tokens > CONTEXT:
                raise Refused(400, {"error": {"code": 400, "message": "the request exceeds the available context size",
                                              "type": "exceed_context_size_error", "n_ctx": CONTEXT}})
            return {"shape": "llamacpp", "prompt": r["prompt"], "seed": r.get("seed", 0), "max": r.get("n_predict", -1),
                    "stop": r.get("stop", [])}
        if path == "/generate_stream" and kind == "tgi":
            _check(r, {"inputs": str, "parameters": dict}, 422)
            p = r["parameters"]
            for name, holds in {"temperature": lambda v: v > 0, "top_p": lambda v: 0 < v < 1, "top_k": lambda v: v > 0,
                                "typical_p": lambda v: 0 < v < 1, "repetition_penalty": lambda v: v > 0,
                                "max_new_tokens": lambda v: v > 0}.items():
                if name in p and not holds(p[name]):
                    raise Refused(422, {"error": f"Input validation error: `{name}` is out of range",
                                        "error_type": "validation"})
            return {"shape": "tgi", "prompt": r["inputs"], "seed": p.get("seed", 0), "max": p.get("max_new_tokens", 20),
                    "stop": p.get("stop", [])}
        if path == f"/v2/models/{self.engine.model}/generate_stream" and kind == "triton":
            _check(r, {"text_input": str, "max_tokens": int, "stream": bool}, 400)
            return {"shape": "triton", "prompt": r["text_input"], "seed": r.get("random_seed", 0), "max": r["max_tokens"],
                    "stop": r.get("stop_words", [])}
        raise Refused(404, {"error": {"message": "not found", "type": "not_found"}})

    def _openai_job(self, r, path):
        chat = path.endswith("chat/completions")
        if self.engine.chat_names is not None:
            if not chat:
                raise Refused(404, {"error": {"message": "not found", "type": "not_found"}})
            if set(self.engine.chat_names) & set(r):
                raise Refused(400, {"error": {"message": "unsupported", "type": "invalid_request_error", "code": "unsupported_parameter"}})
            r = {**r, **{field: r[name] for field, name in self.engine.chat_names.items()}}
        _check(r, {"messages": list} if chat else {"prompt": str}, 400)
        if self.engine.kind in ("openai", "vllm"):
            _check(r, {"model": str}, 400)
            if r["model"] != self.engine.model:
                raise Refused(404, {"error": {"message": "no such model", "type": "NotFoundError", "code": "model_not_found"}})
        extra = {"top_k", "min_p", "repetition_penalty"}
        if self.engine.kind == "openai" and extra & set(r):
            raise Refused(400, {"error": {"message": "unknown field", "type": "invalid_request_error",
                                          "code": "unknown_parameter"}})
        if not r.get("stream"):
            raise Refused(400, {"error": {"message": "a test streams", "type": "invalid_request_error"}})
        prompt = json.dumps(r["messages"]) if chat else r["prompt"]
        if len(prompt.split()) > CONTEXT:
            raise Refused(400, {"error": {"message": f"This model's maximum context length is {CONTEXT} tokens",
                                          "type": "invalid_request_error", "code": "context_length_exceeded"}})
        return {"shape": "chat" if chat else "text", "prompt": prompt, "seed": r.get("seed", 0), "max": r["max_tokens"],
                "stop": r.get("stop", []), "usage": r.get("stream_options", {}).get("include_usage", False)}

    # How it streams.

    def _answer(self, job, fault):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        count = job["max"] if self.engine.eos_after is None else min(job["max"], self.engine.eos_after)
        texts = tokens_of(job["prompt"], job["seed"], count)
        self.cut = fault.kind if fault is not None and fault.kind in ("bytes", "one_chunk") else None
        self.held = b""
        try:
            stopped = self._stream(job, fault, texts)
            if stopped is None:
                return
            if self.held:
                self._write(self.held)
            self._write(b"")
            with self.engine.lock:
                self.engine.answers += 1
        except OSError:
            with self.engine.lock:
                self.engine.disconnected += 1
            self.engine.disconnects.release()
            self.close_connection = True

    def _stream(self, job, fault, texts):
        """Whether it came to its end; None after a fault that ended it."""
        reason = "length" if len(texts) == job["max"] else "eos"
        sent = ""
        done = 0
        for i, text in enumerate(texts):
            if fault is not None and i == fault.after and self._fault(fault):
                return None
            stop = next((s for s in job["stop"] if s in sent + text), None)
            if stop:
                text = (sent + text).partition(stop)[0][len(sent):]
                reason = "stop"
            sent += text
            done = i + 1
            self._event(self._token(job, i, text, reason if done == len(texts) or stop else None, done))
            if stop:
                break
        if fault is not None and fault.after >= len(texts) and self._fault(fault):
            return None
        for event in self._ending(job, reason, done):
            self._event(event)
        return True

    def _fault(self, fault):
        """True: the answer is over."""
        if fault.kind == "gate":
            while not self.engine.gate.wait(0.005):
                if self._client_left():
                    raise OSError("left")
        elif fault.kind == "die":  # what was sent arrives: a reset would drop it on the way
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_WR)
            return True
        elif fault.kind == "bad_utf8":
            self._chunk(b'data: {"content": "\xff\xfe", "choices": [{"text": "\xff"}]}\n\n')
            return True
        elif fault.kind == "garbage":
            self._chunk(b"data: {{{ no json\n\n")
            return True
        elif fault.kind == "endless_line":
            for _ in range(80):
                self._chunk(b"data: " + b"x" * 65536)
            return True
        elif fault.kind == "error_event":
            self._event({"error": {"message": "a secret prompt", "type": "server_error", "code": 500}})
            self._chunk(b"")
            return True
        elif fault.kind == "overloaded":
            self._chunk(b'data: {"error":"x","error_type":"overloaded"}\n\ndata: [DONE]\n\n')
            self._chunk(b"")
            return True
        return False

    def _client_left(self):
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _token(self, job, i, text, reason, done):
        shape = job["shape"]
        prompt_tokens = len(job["prompt"].split())
        if shape == "llamacpp":
            return {"index": 0, "content": text, "tokens": [i], "stop": False, "id_slot": 0}
        if shape == "tgi":
            details = None
            if reason:
                names = {"length": "length", "eos": "eos_token", "stop": "stop_sequence"}
                details = {"finish_reason": names[reason], "generated_tokens": done, "input_length": prompt_tokens,
                           "seed": job["seed"]}
            return {"index": i + 1, "token": {"id": i, "text": text, "logprob": -0.1, "special": False},
                    "generated_text": "all" if reason else None, "details": details}
        if shape == "triton":
            return {"model_name": self.engine.model, "model_version": "1", "text_output": text}
        choice = {"index": 0, "finish_reason": None}
        choice.update({"delta": {"content": text}} if shape == "chat" else {"text": text})
        return {"id": "c", "object": "chunk", "model": self.engine.model, "choices": [choice]}

    def _ending(self, job, reason, done):
        shape = job["shape"]
        prompt_tokens = len(job["prompt"].split())
        if shape == "llamacpp":
            names = {"length": "limit", "eos": "eos", "stop": "word"}
            return [{"index": 0, "content": "", "tokens": [], "stop": True, "stop_type": names[reason], "stopping_word": "",
                     "tokens_predicted": done, "tokens_evaluated": prompt_tokens, "truncated": False}]
        if shape in ("tgi", "triton"):
            return []
        choice = {"index": 0, "finish_reason": "length" if reason == "length" else "stop"}
        if self.engine.kind == "vllm":
            choice["stop_reason"] = job["stop"][0] if reason == "stop" else None
        choice.update({"delta": {}} if shape == "chat" else {"text": ""})
        events = [{"id": "c", "object": "chunk", "model": self.engine.model, "choices": [choice]}]
        if job["usage"]:
            events.append({"id": "c", "object": "chunk", "choices": [],
                           "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": done,
                                     "total_tokens": prompt_tokens + done}})
        return [*events, "[DONE]"]

    # Bytes.

    def _event(self, data):
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        self._chunk(f"data: {text}\n\n".encode())

    def _chunk(self, data):
        if self.cut == "one_chunk":
            self.held += data
        elif self.cut == "bytes":
            for i in range(len(data)):
                self._write(data[i:i + 1])
        else:
            self._write(data)

    def _write(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _abort(self):
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            self.connection.close()

    def _json(self, status, body, headers=None):
        raw = json.dumps(body).encode()
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)


def _check(request, wanted, status):
    for name, kind in wanted.items():
        if not isinstance(request.get(name), kind):
            raise Refused(status, {"error": {"message": f"{name} is missing", "type": "invalid_request_error"}})
