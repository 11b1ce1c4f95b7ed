"""NVIDIA's Triton with a model of text, by nvidia-pytriton, on the CPU: triton_server.py DIRECTORY. The model is decoupled, as those
of TensorRT-LLM are: each response holds one text, whose words follow from prompt and seed as those of fake_engine.py do. Prints its
ports of HTTP and gRPC. Serves until it is killed."""

import json
import pathlib
import socket
import sys
import time

import numpy
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

from fake_engine import tokens_of

directory = pathlib.Path(sys.argv[1])


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def tell(requests):
    given = {name: values.flat[0] for name, values in requests[0].data.items()}
    prompt = given["text_input"].decode()
    if prompt.startswith("refuse"):
        raise ValueError("a secret: " + prompt)
    texts = tokens_of(prompt, int(given.get("random_seed", 0)), int(given["max_tokens"]))
    for text in texts:
        if prompt.startswith("slow"):
            time.sleep(0.02)
        yield [{"text_output": numpy.array([text.encode()], dtype=object),
                "num_input_tokens": numpy.array([len(prompt.split())], dtype=numpy.int32)}]


ports = {"http_port": free_port(), "grpc_port": free_port(), "metrics_port": free_port()}
with Triton(config=TritonConfig(**ports, http_address="127.0.0.1", grpc_address="127.0.0.1", metrics_address="127.0.0.1"),
            workspace=str(directory / "workspace")) as triton:
    scalar = {"shape": (1,)}
    # Without batching: one call of the model holds one request.
    triton.bind(model_name="tale", infer_func=tell, config=ModelConfig(batching=False, decoupled=True), strict=False,
                inputs=[Tensor(name="text_input", dtype=bytes, **scalar), Tensor(name="max_tokens", dtype=numpy.int32, **scalar),
                        Tensor(name="stream", dtype=numpy.bool_, optional=True, **scalar),
                        Tensor(name="temperature", dtype=numpy.float32, optional=True, **scalar),
                        Tensor(name="random_seed", dtype=numpy.uint64, optional=True, **scalar),
                        Tensor(name="stop_words", dtype=bytes, optional=True, shape=(-1,))],
                outputs=[Tensor(name="text_output", dtype=bytes, **scalar),
                         Tensor(name="num_input_tokens", dtype=numpy.int32, **scalar)])
    triton.run()
    print(json.dumps([ports["http_port"], ports["grpc_port"]]), flush=True)
    while True:
        time.sleep(60)
