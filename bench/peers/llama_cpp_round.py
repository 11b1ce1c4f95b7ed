"""One round of llama.cpp: {"version": ..., "system": ..., "figures": [...]} on standard output.

Usage: llama_cpp_round.py MODEL.gguf JSON, where JSON has prompt, generate, batches, contexts, threads.
"""
import json
import sys
import time

import llama_cpp as ll

CHUNK = 512  # rows of one evaluation at most


class Peer:
    def __init__(self, model_path, shape):
        self.shape = shape
        self.sequences = max(shape["batches"])
        room = max(shape["contexts"]) + max(shape["prompt"], shape["generate"]) + 1
        model_params = ll.llama_model_default_params()
        model_params.n_gpu_layers = 0
        self.model = ll.llama_model_load_from_file(model_path.encode(), model_params)
        if not self.model:
            sys.exit(f"llama.cpp does not load {model_path}")
        params = ll.llama_context_default_params()
        params.n_ctx = -(-room // 256) * 256 * self.sequences
        params.n_seq_max = self.sequences
        params.n_batch = params.n_ubatch = CHUNK
        params.n_threads = params.n_threads_batch = shape["threads"]
        self.context = ll.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit(f"llama.cpp makes no context of {params.n_ctx}")
        self.memory = ll.llama_get_memory(self.context)
        self.vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self.model))
        self.batch = ll.llama_batch_init(CHUNK, 0, 1)

    def token(self, sequence, position):
        """The same as llorch bench feeds."""
        return (position * 7 + sequence * 31 + 3) % self.vocab

    def evaluate(self, rows):
        """rows: (sequence, position, whether its logits are wanted)."""
        for i, (sequence, position, wanted) in enumerate(rows):
            self.batch.token[i] = self.token(sequence, position)
            self.batch.pos[i] = position
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = sequence
            self.batch.logits[i] = wanted
        self.batch.n_tokens = len(rows)
        status = ll.llama_decode(self.context, self.batch)
        if status != 0:
            sys.exit(f"llama_decode returns {status}")
        for i, row in enumerate(rows):
            if row[2]:
                ll.llama_get_logits_ith(self.context, i)[0]  # waits until they are there

    def append(self, sequence, begin, end):
        for at in range(begin, end, CHUNK):
            last = min(at + CHUNK, end)
            self.evaluate([(sequence, p, p == end - 1) for p in range(at, last)])

    def cut(self, positions):
        for sequence in range(self.sequences):
            ll.llama_memory_seq_rm(self.memory, sequence, positions, -1)

    def figures(self):
        prompt, generate = self.shape["prompt"], self.shape["generate"]
        self.append(0, 0, min(prompt, CHUNK))  # warm-up, as llorch bench has one
        for context in self.shape["contexts"]:
            self.cut(0)
            for sequence in range(self.sequences):
                self.append(sequence, 0, context)
            begin = time.perf_counter()
            self.append(0, context, context + prompt)
            seconds = time.perf_counter() - begin
            self.cut(context)
            yield {"phase": "prefill", "context": context, "batch": 1, "tokens_per_s": prompt / seconds}
            for batch in self.shape["batches"]:
                begin = time.perf_counter()
                for step in range(generate):
                    self.evaluate([(sequence, context + step, True) for sequence in range(batch)])
                seconds = time.perf_counter() - begin
                self.cut(context)
                yield {"phase": "decode", "context": context, "batch": batch, "tokens_per_s": batch * generate / seconds}


def main():
    ll.llama_log_set(quiet, None)
    ll.llama_backend_init()
    peer = Peer(sys.argv[1], json.loads(sys.argv[2]))
    print(json.dumps({"version": ll.__version__, "system": ll.llama_print_system_info().decode().strip(" |"), "figures": list(peer.figures())}))


@ll.llama_log_callback
def quiet(_level, _text, _data):
    pass


if __name__ == "__main__":
    main()
