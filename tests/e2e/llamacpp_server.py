"""llama.cpp's server from the Python package xllamacpp, as a program: llamacpp_server.py --model FILE --port N [--ctx-size N].
Serves until it is killed. Used by test_engine_llamacpp.py; exits with 3 when the package is not installed."""

import argparse
import signal
import sys

try:
    import xllamacpp
except ImportError:
    sys.exit(3)

options = argparse.ArgumentParser()
options.add_argument("--model", required=True)
options.add_argument("--port", type=int, required=True)
options.add_argument("--ctx-size", type=int, default=512)
options = options.parse_args()

params = xllamacpp.CommonParams()
params.model.path = options.model
params.port = options.port
params.n_ctx = options.ctx_size
params.n_parallel = 1
params.cont_batching = False
server = xllamacpp.Server(params)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
