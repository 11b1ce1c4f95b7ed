"""Triton over gRPC, as far as an adapter sees it: a real gRPC server (grpcio) of the KServe v2 protocol in front of no model. It
has the faults and the attributes of fake_engine.py, so the same tests run. The messages are those of the adapter's own .proto."""

import contextlib
import concurrent.futures
import pathlib
import socket
import struct
import subprocess
import tempfile
import threading

import pytest

from fake_engine import tokens_of

try:
    import grpc
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError:
    grpc = None

needed = pytest.mark.skipif(grpc is None, reason="grpcio is not installed (tests/clients/requirements.txt pins it)")

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "src"
SERVICE = "inference.GRPCInferenceService"
CODES = {400: 3, 401: 16, 422: 3, 429: 8, 500: 13, 503: 14}
# Of TensorRT-LLM's ensemble, with the counts that some add.
INPUTS = {"text_input": "BYTES", "max_tokens": "INT32", "stream": "BOOL", "temperature": "FP32", "top_k": "INT32",
          "top_p": "FP32", "repetition_penalty": "FP32", "frequency_penalty": "FP32", "presence_penalty": "FP32",
          "random_seed": "UINT64", "stop_words": "BYTES", "exclude_input_in_output": "BOOL",
          "return_num_input_tokens": "BOOL", "return_num_output_tokens": "BOOL"}
FORMATS = {"INT32": "<i", "BOOL": "<?", "FP32": "<f", "UINT64": "<Q"}


def messages():
    """The classes of the .proto, by name."""
    with tempfile.NamedTemporaryFile(suffix=".bin") as out:
        subprocess.run(["protoc", f"--proto_path={SOURCES}", f"--descriptor_set_out={out.name}",
                        "adapter/engines/kserve.proto"], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return {name.rpartition(".")[2]: made for name, made in
            message_factory.GetMessageClassesForFiles([f.name for f in files.file], pool).items()}


class Cut(Exception):
    """The connection is gone, and nothing of the server's own reaches the client any more."""


class FakeGrpcEngine:
    kind = "triton"
    grpc = True

    def __init__(self, key=None, model="tale", version="1.2.3", certificate=None, inputs=None):
        self.key, self.model, self.version = key, model, version
        self.inputs = INPUTS if inputs is None else inputs
        self.eos_after = None
        self.final_flag = True  # the last response says that it is
        self.ready = True
        self.script = []
        self.lock = threading.Lock()
        self.requests = []  # (method, path, headers, body)
        self.disconnects = threading.Semaphore(0)
        self.disconnected = 0
        self.answers = 0
        self.down = False
        self.gate = threading.Event()
        self.m = messages()
        one = {"ServerMetadata": self._server, "ModelReady": self._ready, "ModelMetadata": self._metadata}
        handlers = {name: grpc.unary_unary_rpc_method_handler(self._checked(name, answer)) for name, answer in one.items()}
        handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(self._stream)
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(32))
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
        if certificate:
            pair = (pathlib.Path(certificate[1]).read_bytes(), pathlib.Path(certificate[0]).read_bytes())
            port = self.server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
        else:
            port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()
        self.relay = Relay(port)
        self.url = f"{'grpcs' if certificate else 'grpc'}://127.0.0.1:{self.relay.port}"

    def close(self):
        self.gate.set()
        self.relay.close()
        self.server.stop(None).wait(10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def submissions(self):
        """The tensors of what asked for an answer, by name."""
        with self.lock:
            bodies = [body for _, path, _, body in self.requests if path.endswith("/ModelStreamInfer")]
        return [self._tensors(self.m["ModelInferRequest"].FromString(body)) for body in bodies]

    # What it says of itself.

    def _record(self, name, context, body):
        headers = {key.title(): value for key, value in context.invocation_metadata()}
        with self.lock:
            self.requests.append(("POST", f"/{SERVICE}/{name}", headers, body))
        if self.down:
            context.abort(grpc.StatusCode.UNAVAILABLE, "loading")
        if self.key and headers.get("Authorization") != f"Bearer {self.key}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, f"invalid key {headers.get('Authorization')}")

    def _checked(self, name, answer):
        def handle(body, context):
            self._record(name, context, body)
            return answer(body).SerializeToString()
        return handle

    def _server(self, _):
        return self.m["ServerMetadataResponse"](version=self.version)

    def _ready(self, body):
        return self.m["ModelReadyResponse"](ready=self.ready and self.m["ModelReadyRequest"].FromString(body).name == self.model)

    def _metadata(self, body):
        assert self.m["ModelMetadataRequest"].FromString(body).name == self.model
        return self.m["ModelMetadataResponse"](inputs=[{"name": name, "shape": [-1, -1 if name == "stop_words" else 1]}
                                                       for name in self.inputs])

    # A stream.

    def _tensors(self, request):
        out = {}
        assert len(request.inputs) == len(request.raw_input_contents)
        for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True):
            if tensor.name not in self.inputs:
                raise ValueError(f"unexpected inference input '{tensor.name}' for model '{self.model}'")
            if tensor.datatype != self.inputs[tensor.name] or len(tensor.shape) != 2 or tensor.shape[0] != 1:
                raise ValueError(f"input '{tensor.name}' is {tensor.datatype} {list(tensor.shape)}")
            if tensor.datatype == "BYTES":
                values, at = [], 0
                while at < len(raw):
                    length = struct.unpack_from("<I", raw, at)[0]
                    values.append(raw[at + 4:at + 4 + length].decode())
                    at += 4 + length
            else:
                values = [struct.unpack(FORMATS[tensor.datatype], raw)[0]]
            if len(values) != tensor.shape[1]:
                raise ValueError(f"input '{tensor.name}' has {len(values)} elements for {list(tensor.shape)}")
            out[tensor.name] = values if tensor.name == "stop_words" else values[0]
        return out

    def _stream(self, bodies, context):
        for body in bodies:
            self._record("ModelStreamInfer", context, body)
            with self.lock:
                fault = self.script.pop(0) if self.script else None
            done = threading.Event()
            if fault is None or fault.kind == "gate":  # others break off, and so may the client
                context.add_callback(lambda done=done: self._over(done))
            try:
                yield from self._answer(self.m["ModelInferRequest"].FromString(body), fault, context)
                done.set()
            except Cut:
                context.cancel()
                return

    def _over(self, done):
        if not done.is_set():
            with self.lock:
                self.disconnected += 1
            self.disconnects.release()

    def _answer(self, request, fault, context):
        if fault and fault.kind == "status":
            context.abort(grpc.StatusCode(self._code(CODES[fault.more["status"]])), "a secret prompt: Once%20upon")
        if fault and fault.kind == "close":
            self.relay.cut()
            raise Cut
        try:
            job = self._tensors(request)
            assert request.model_name == self.model and request.parameters["triton_enable_empty_final_response"].bool_param
        except (ValueError, AssertionError) as wrong:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(wrong))
        if fault and fault.kind in ("bytes", "one_chunk"):
            self.relay.cuts = fault.kind
        count = job["max_tokens"] if self.eos_after is None else min(job["max_tokens"], self.eos_after)
        texts = tokens_of(job["text_input"], job.get("random_seed", 0), count)
        sent, done = "", 0
        for i, text in enumerate(texts):
            if fault and fault.after == i:
                yield from self._fault(fault, texts[i - 1] if i else None, context)
                if fault.kind not in ("gate", "bytes", "one_chunk"):
                    return
            stop = next((s for s in job.get("stop_words", []) if s in sent + text), None)
            if stop:
                text = (sent + text).partition(stop)[0][len(sent):]
            sent, done = sent + text, i + 1
            yield self._token(text)
            if stop:
                break
        final = {"parameters": {"triton_final_response": {"bool_param": True}}} if self.final_flag else {}
        counts = []
        if job.get("return_num_input_tokens"):
            counts = [("num_input_tokens", len(job["text_input"].split())), ("num_output_tokens", done)]
        if self.final_flag or counts:
            yield self._response({"outputs": [{"name": n, "datatype": "INT32"} for n, _ in counts],
                                  "raw_output_contents": [struct.pack("<i", value) for _, value in counts], **final})
        self.relay.cuts = None
        with self.lock:
            self.answers += 1

    @staticmethod
    def _code(number):
        return next(code.value for code in grpc.StatusCode if code.value[0] == number)

    def _fault(self, fault, before, context):
        if fault.kind == "gate":
            while not self.gate.wait(0.005):
                if not context.is_active():
                    raise Cut
        elif fault.kind == "die":  # what was sent arrives
            self.relay.cut(before)
            raise Cut
        elif fault.kind == "bad_utf8":
            yield self._token(b"\xff\xfe")
        elif fault.kind == "garbage":
            yield b"\xff no message"
        elif fault.kind == "bad_words":  # error_message, with what is no UTF-8
            yield b"\x0a\x08secret\xff\xfe"
        elif fault.kind == "endless_line":
            yield self._token("x" * (5 << 20))
        elif fault.kind == "error_event":
            yield self.m["ModelStreamInferResponse"](error_message="a secret prompt").SerializeToString()
        elif fault.kind == "headers":
            context.set_trailing_metadata([(f"x-{i}", "y" * 1000) for i in range(fault.more["count"])])

    def _token(self, text):
        raw = text if isinstance(text, bytes) else text.encode()
        return self._response({"outputs": [{"name": "text_output", "datatype": "BYTES"}],
                               "raw_output_contents": [struct.pack("<I", len(raw)) + raw]})

    def _response(self, fields):
        return self.m["ModelStreamInferResponse"](infer_response=fields).SerializeToString()


class Relay:
    """Between client and server, byte by byte if it is told to, and cuts connections."""

    def __init__(self, server_port):
        self.server_port = server_port
        self.cuts = None
        self.lock = threading.Lock()
        self.pairs = []
        self.needle = None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.close()
        self.cut()

    def cut(self, behind=None):
        """All connections; `behind`: once this text has gone to a client."""
        if behind is not None:
            self.needle = behind.encode()
        with self.lock:
            pairs = list(self.pairs)
        for pair in pairs:
            if behind is None or self.needle in pair["sent"]:
                self._end(pair)

    def _end(self, pair):
        self.needle = None
        with self.lock:
            if pair in self.pairs:
                self.pairs.remove(pair)
        for end in (pair["client"], pair["server"]):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.server_port))
            except OSError:
                return
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = {"client": client, "server": server, "sent": b""}
            with self.lock:
                self.pairs.append(pair)
            threading.Thread(target=self._pump, args=(pair, "client", "server"), daemon=True).start()
            threading.Thread(target=self._pump, args=(pair, "server", "client"), daemon=True).start()

    def _pump(self, pair, source, sink):
        try:
            while data := pair[source].recv(1 << 16):
                if sink == "client" and self.cuts == "one_chunk":
                    pair[source].settimeout(0.3)
                    with contextlib.suppress(TimeoutError):
                        while more := pair[source].recv(1 << 16):
                            data += more
                    pair[source].settimeout(None)
                step = 1 if sink == "client" and self.cuts == "bytes" else len(data)
                for at in range(0, len(data), step):
                    pair[sink].sendall(data[at:at + step])
                if sink == "client":
                    pair["sent"] = (pair["sent"] + data)[-4096:]
                    if self.needle is not None and self.needle in pair["sent"]:
                        break
        except OSError:
            pass
        self._end(pair)
