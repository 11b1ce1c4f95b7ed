"""Writes tests/golden/families/{qwen3_5,glm4_moe,mimo_v2,deepseek_v3,deepseek_v32}_predicts.tar.xz: tiny models of these families with a
layer that predicts a further token, as Hugging Face directories and (all but MiMo) as GGUF, and the float64 logits of the model (golden.bin) and of that layer (predictor.bin), which
NumPy computes here from exactly the stored weights.

    venv/bin/pip install numpy gguf && venv/bin/python tests/parity/make_predictor.py

Row i of predictor.bin is what the layer says behind token i + 1, of the embedding of token i + 1 and what the model made of token i; the
first row, of a state of zeros, is left out. predictor_ahead.bin: the tokens that it writes by itself behind the first 40, and the logits
it does so by. Layout of all: tests/golden/README.md.

A token's row of the head is like the embedding of the token that it mostly follows, the layers' branches are small, and the predictor's
matrix is near to [identity | 0]: the next token mostly depends on the last one, and the layer mostly knows it. What is not small enough to
vanish is what the reference is for.
"""
import json
import struct
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np

OUT = Path(__file__).parents[1] / "golden/families"
TOKENS, V, D, F, EPS, THETA = 64, 288, 64, 96, 1e-5, 10000.0
AHEAD_OF = 40  # tokens that the layer writes on behind
HEADS, KV_HEADS, HEAD = 4, 2, 16
DELTA_HEADS, DK, DV, TAPS = 2, 16, 16, 4
EXPERTS, USED, EXPERT_F, EXPERT_SCALE = 6, 2, 48, 1.5
V_HEAD, WINDOW, VALUE_SCALE, WINDOW_THETA = 24, 12, 0.707, 500.0
Q_LORA, KV_LORA, NOPE, ROPE, INDEX_HEADS, INDEX_DIM, INDEX_TOP = 40, 32, 16, 8, 3, 16, 96
RNG = np.random.default_rng(26)

# offset: what is added to norms' weights. predicts: the kind of the layer that predicts. own_normed: which of its own states the layer reads from its second row on.
QWEN = SimpleNamespace(
    name="qwen3_5_predicts", architecture="qwen35", predicts="full_attention", eps=EPS, offset=1.0, gated=True, rotated=4, own_normed=True, sparse_from=99,
    layers=["linear_attention", "full_attention", "linear_attention", "full_attention"],
    layer="mtp.layers.0.", matrix="mtp.fc.weight", embedding_norm="mtp.pre_fc_norm_embedding.weight",
    hidden_norm="mtp.pre_fc_norm_hidden.weight", norm="mtp.norm.weight")
GLM = SimpleNamespace(
    name="glm4_moe_predicts", architecture="glm4moe", predicts="full_attention", eps=EPS, offset=0.0, gated=False, rotated=8, own_normed=False, sparse_from=1, layers=3 * ["full_attention"],
    layer="model.layers.3.", matrix="model.layers.3.eh_proj.weight", embedding_norm="model.layers.3.enorm.weight",
    hidden_norm="model.layers.3.hnorm.weight", norm="model.layers.3.shared_head.norm.weight")
MIMO = SimpleNamespace(
    name="mimo_v2_predicts", architecture="", predicts="sliding_attention", eps=EPS, offset=0.0, gated=False, rotated=8, own_normed=True,
    sparse_from=1, layers=["full_attention", "sliding_attention", "full_attention"], layer="model.mtp.layers.0.",
    matrix="model.mtp.layers.0.eh_proj.weight", embedding_norm="model.mtp.layers.0.enorm.weight",
    hidden_norm="model.mtp.layers.0.hnorm.weight", norm="model.mtp.layers.0.final_layernorm.weight")
# The norms within latent attention have this epsilon whatever the others have.
DEEPSEEK = SimpleNamespace(**{**vars(GLM), **dict(
    name="deepseek_v3_predicts", architecture="deepseek2", predicts="latent_attention", eps=1e-6, rotated=ROPE,
    layers=3 * ["latent_attention"])})
# Its index chooses more positions than the reference has, so it need not be computed here.
DEEPSEEK_INDEX = SimpleNamespace(**{**vars(DEEPSEEK), **dict(name="deepseek_v32_predicts", architecture="deepseek32")})


def bf16(x):
    """Rounded to BF16, as F32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def normal(*shape, scale=0.06):
    return bf16(scale * RNG.standard_normal(shape))


def norm_weight(m, *shape):
    return bf16(1 - m.offset + normal(*shape))


def attention_weights(m, prefix):
    rows = (2 if m.gated else 1) * HEADS * HEAD
    return {f"{prefix}self_attn.q_proj.weight": normal(rows, D), f"{prefix}self_attn.k_proj.weight": normal(KV_HEADS * HEAD, D),
            f"{prefix}self_attn.v_proj.weight": normal(KV_HEADS * HEAD, D), f"{prefix}self_attn.o_proj.weight": normal(D, HEADS * HEAD),
            f"{prefix}self_attn.q_norm.weight": norm_weight(m, HEAD), f"{prefix}self_attn.k_norm.weight": norm_weight(m, HEAD)}


def mimo_weights(m, prefix, kind):
    windowed = kind == "sliding_attention"
    keys = (2 if windowed else 1) * KV_HEADS
    return {f"{prefix}self_attn.q_proj.weight": normal(HEADS * HEAD, D), f"{prefix}self_attn.k_proj.weight": normal(keys * HEAD, D),
            f"{prefix}self_attn.v_proj.weight": normal(keys * V_HEAD, D), f"{prefix}self_attn.o_proj.weight": normal(D, HEADS * V_HEAD),
            **({f"{prefix}self_attn.attention_sink_bias": normal(HEADS, scale=1)} if windowed else {})}


def latent_weights(m, prefix):
    p = f"{prefix}self_attn."
    weights = {p + "q_a_proj.weight": normal(Q_LORA, D), p + "q_a_layernorm.weight": norm_weight(m, Q_LORA),
               p + "q_b_proj.weight": normal(HEADS * (NOPE + ROPE), Q_LORA), p + "kv_a_proj_with_mqa.weight": normal(KV_LORA + ROPE, D),
               p + "kv_a_layernorm.weight": norm_weight(m, KV_LORA), p + "kv_b_proj.weight": normal(HEADS * (NOPE + V_HEAD), KV_LORA),
               p + "o_proj.weight": normal(D, HEADS * V_HEAD)}
    if m is DEEPSEEK_INDEX:
        p += "indexer."
        weights |= {p + "wq_b.weight": normal(INDEX_HEADS * INDEX_DIM, Q_LORA), p + "wk.weight": normal(INDEX_DIM, D),
                    p + "k_norm.weight": norm_weight(m, INDEX_DIM), p + "k_norm.bias": normal(INDEX_DIM),
                    p + "weights_proj.weight": normal(INDEX_HEADS, D)}
    return weights


def delta_weights(m, prefix):
    p, channels = f"{prefix}linear_attn.", DELTA_HEADS * (2 * DK + DV)
    return {p + "in_proj_qkv.weight": normal(channels, D), p + "in_proj_z.weight": normal(DELTA_HEADS * DV, D),
            p + "in_proj_b.weight": normal(DELTA_HEADS, D), p + "in_proj_a.weight": normal(DELTA_HEADS, D),
            p + "conv1d.weight": normal(channels, 1, TAPS, scale=0.5), p + "A_log": bf16(np.log(RNG.uniform(1, 4, DELTA_HEADS))),
            p + "dt_bias": bf16(1 + normal(DELTA_HEADS)), p + "norm.weight": bf16(1 + normal(DV)),
            p + "out_proj.weight": normal(D, DELTA_HEADS * DV)}


def dense_weights(prefix, width):
    return {f"{prefix}gate_proj.weight": normal(width, D), f"{prefix}up_proj.weight": normal(width, D),
            f"{prefix}down_proj.weight": normal(D, width)}


def ffn_norm(m, prefix):
    return f"{prefix}{'pre_mlp' if m is MIMO and prefix == m.layer else 'post_attention'}_layernorm.weight"


def layer_weights(m, prefix, number, kind):
    weights = {f"{prefix}input_layernorm.weight": norm_weight(m, D), ffn_norm(m, prefix): norm_weight(m, D)}
    if m is MIMO:
        weights |= mimo_weights(m, prefix, kind)
    else:
        weights |= {"linear_attention": delta_weights, "full_attention": attention_weights, "latent_attention": latent_weights}[kind](m, prefix)
    if number < m.sparse_from or (m is MIMO and prefix == m.layer):
        return weights | dense_weights(f"{prefix}mlp.", F)
    for expert in range(EXPERTS):
        weights |= dense_weights(f"{prefix}mlp.experts.{expert}.", EXPERT_F)
    if m is not MIMO:
        weights |= dense_weights(f"{prefix}mlp.shared_experts.", EXPERT_F)
    return weights | {
        f"{prefix}mlp.gate.weight": normal(EXPERTS, D, scale=0.3), f"{prefix}mlp.gate.e_score_correction_bias": normal(EXPERTS)}


def make_weights(m):
    table, order = normal(V, D, scale=1), RNG.permutation(V)
    follows = np.empty(V, np.int64)
    follows[order] = np.roll(order, -1)
    head = np.empty((V, D))
    head[follows] = 0.25 * table + 0.4 * RNG.standard_normal((V, D))
    weights = {"model.embed_tokens.weight": table, "lm_head.weight": bf16(head), "model.norm.weight": norm_weight(m, D)}
    for n, kind in enumerate(m.layers):
        weights |= layer_weights(m, f"model.layers.{n}.", n, kind)
    weights |= layer_weights(m, m.layer, len(m.layers), m.predicts)
    return weights | {m.matrix: bf16(np.concatenate([np.eye(D), np.zeros((D, D))], 1) + 0.02 * RNG.standard_normal((D, 2 * D))),
                      m.embedding_norm: norm_weight(m, D), m.hidden_norm: norm_weight(m, D), m.norm: weights["model.norm.weight"]}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def norm(x, weight, offset, eps=EPS):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * (offset + weight)


def rotated(x, dims, theta=THETA):  # [rows, heads, HEAD], the rows at positions 0, 1, ...
    half = dims // 2
    angles = np.arange(x.shape[0])[:, None] * theta ** (-2.0 * np.arange(half) / dims)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half:dims]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., dims:]], -1)


def attention(m, x, w, p):
    rows = x.shape[0]
    both = (x @ w[p + "q_proj.weight"].T).reshape(rows, HEADS, -1)
    q = rotated(norm(both[..., :HEAD], w[p + "q_norm.weight"], m.offset), m.rotated)
    k = norm((x @ w[p + "k_proj.weight"].T).reshape(rows, KV_HEADS, HEAD), w[p + "k_norm.weight"], m.offset)
    v = (x @ w[p + "v_proj.weight"].T).reshape(rows, KV_HEADS, HEAD)
    k = np.repeat(rotated(k, m.rotated), HEADS // KV_HEADS, 1)
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(HEAD) + np.triu(np.full((rows, rows), -np.inf), 1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    y = np.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdims=True), np.repeat(v, HEADS // KV_HEADS, 1))
    return (y * sigmoid(both[..., HEAD:]) if m.gated else y).reshape(rows, -1) @ w[p + "o_proj.weight"].T


def mimo_attention(m, x, w, p):
    """Layers with a window have sinks, twice the key heads and a rotation of their own."""
    rows, sinks = x.shape[0], w.get(p + "attention_sink_bias")
    theta = THETA if sinks is None else WINDOW_THETA
    q = rotated((x @ w[p + "q_proj.weight"].T).reshape(rows, HEADS, HEAD), m.rotated, theta)
    k = rotated((x @ w[p + "k_proj.weight"].T).reshape(rows, -1, HEAD), m.rotated, theta)
    v = VALUE_SCALE * (x @ w[p + "v_proj.weight"].T).reshape(rows, -1, V_HEAD)
    k, v = (np.repeat(part, HEADS // part.shape[1], 1) for part in (k, v))
    behind = np.arange(rows)[:, None] - np.arange(rows)
    seen = (behind >= 0) & (True if sinks is None else behind < WINDOW)
    scores = np.where(seen, np.einsum("ihd,jhd->hij", q, k) / np.sqrt(HEAD), -np.inf)
    weights = np.exp(scores)
    sums = weights.sum(-1, keepdims=True) + (0 if sinks is None else np.exp(sinks)[:, None, None])
    return np.einsum("hij,jhd->ihd", weights / sums, v).reshape(rows, -1) @ w[p + "o_proj.weight"].T


def rotated_pairs(x):  # neighbours turn together
    angles = np.arange(x.shape[0])[:, None] * THETA ** (-2.0 * np.arange(ROPE // 2) / ROPE)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = x[..., ::2], x[..., 1::2]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def latent_attention(m, x, w, p):
    rows = x.shape[0]
    low = norm(x @ w[p + "q_a_proj.weight"].T, w[p + "q_a_layernorm.weight"], 0.0, m.eps)
    q = (low @ w[p + "q_b_proj.weight"].T).reshape(rows, HEADS, NOPE + ROPE)
    both = x @ w[p + "kv_a_proj_with_mqa.weight"].T
    latent = norm(both[:, :KV_LORA], w[p + "kv_a_layernorm.weight"], 0.0, m.eps)
    kv = (latent @ w[p + "kv_b_proj.weight"].T).reshape(rows, HEADS, NOPE + V_HEAD)
    scores = np.einsum("ihd,jhd->hij", q[..., :NOPE], kv[..., :NOPE])
    scores += np.einsum("ihd,jd->hij", rotated_pairs(q[..., NOPE:]), rotated_pairs(both[:, None, KV_LORA:])[:, 0])
    scores = scores / np.sqrt(NOPE + ROPE) + np.triu(np.full((rows, rows), -np.inf), 1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    y = np.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdims=True), kv[..., NOPE:])
    return y.reshape(rows, -1) @ w[p + "o_proj.weight"].T


def gated_delta(m, x, w, p):
    rows, keys = x.shape[0], DELTA_HEADS * DK
    channels = x @ w[p + "in_proj_qkv.weight"].T
    padded = np.concatenate([np.zeros((TAPS - 1, channels.shape[1])), channels])
    taps = w[p + "conv1d.weight"][:, 0]
    mixed = silu(sum(padded[t:t + rows] * taps[:, t] for t in range(TAPS)))
    q, k, v = (part.reshape(rows, DELTA_HEADS, -1) for part in np.split(mixed, [keys, 2 * keys], 1))
    q, k = (part / np.sqrt((part * part).sum(-1, keepdims=True) + 1e-6) for part in (q, k))
    beta = sigmoid(x @ w[p + "in_proj_b.weight"].T)
    decay = np.exp(-np.exp(w[p + "A_log"]) * np.log1p(np.exp(x @ w[p + "in_proj_a.weight"].T + w[p + "dt_bias"])))
    state, y = np.zeros((DELTA_HEADS, DV, DK)), np.zeros((rows, DELTA_HEADS, DV))
    for t in range(rows):
        state *= decay[t][:, None, None]
        wrong = v[t] - np.einsum("hvk,hk->hv", state, k[t])
        state += np.einsum("hv,hk->hvk", beta[t][:, None] * wrong, k[t])
        y[t] = np.einsum("hvk,hk->hv", state, q[t] / np.sqrt(DK))
    z = (x @ w[p + "in_proj_z.weight"].T).reshape(y.shape)
    return (norm(y, w[p + "norm.weight"], 0.0) * silu(z)).reshape(rows, -1) @ w[p + "out_proj.weight"].T


def dense(x, w, p):
    return (silu(x @ w[p + "gate_proj.weight"].T) * (x @ w[p + "up_proj.weight"].T)) @ w[p + "down_proj.weight"].T


def experts(x, w, p):
    shares = sigmoid(x @ w[p + "gate.weight"].T)
    y = dense(x, w, p + "shared_experts.") if p + "shared_experts.up_proj.weight" in w else np.zeros_like(x)
    for t, row in enumerate(shares):
        chosen = np.argsort(-(row + w[p + "gate.e_score_correction_bias"]), kind="stable")[:USED]
        for expert in chosen:
            share = row[expert] / row[chosen].sum() * EXPERT_SCALE
            y[t] += share * dense(x[t:t + 1], w, f"{p}experts.{expert}.")[0]
    return y


def layer(m, x, w, p, kind):
    mixers = {"linear_attention": gated_delta, "latent_attention": latent_attention, "full_attention": attention}
    mixer = mimo_attention if m is MIMO else mixers[kind]
    name = "linear_attn." if kind == "linear_attention" else "self_attn."
    x = x + mixer(m, norm(x, w[p + "input_layernorm.weight"], m.offset, m.eps), w, p + name)
    h = norm(x, w[ffn_norm(m, p)], m.offset, m.eps)
    return x + (experts if p + "mlp.gate.weight" in w else dense)(h, w, p + "mlp.")


def model_states(m, tokens, w):
    x = w["model.embed_tokens.weight"][tokens]
    for n, kind in enumerate(m.layers):
        x = layer(m, x, w, f"model.layers.{n}.", kind)
    return norm(x, w["model.norm.weight"], m.offset, m.eps)


def predictor_states(m, tokens, before, w):
    """A row for each token, `before` is the state of the one before each; what comes is ahead of the layer's norm."""
    joined = np.concatenate([norm(w["model.embed_tokens.weight"][tokens], w[m.embedding_norm], m.offset, m.eps),
                             norm(before, w[m.hidden_norm], m.offset, m.eps)], 1)
    return layer(m, joined @ w[m.matrix].T, w, m.layer, m.predicts)


def shifted(states):
    return np.concatenate([np.zeros((1, D)), states[:-1]])


def greedy(m, tokens, states, w, count):
    """What the layer writes behind the tokens by itself, and the logits it does so by: it reads its own states from the second on."""
    tokens, before = list(tokens), list(shifted(states))
    rows = []
    for _ in range(count):
        own = predictor_states(m, np.array(tokens), np.array(before), w)[-1]
        normed = norm(own, w[m.norm], m.offset, m.eps)
        rows.append(normed @ w["lm_head.weight"].T)
        tokens.append(int(rows[-1].argmax()))
        before.append(normed if m.own_normed else own)
    return tokens[-count:], np.array(rows)


def write_golden(path, tokens, logits):
    head = b"GLD1" + struct.pack("<II", len(tokens), V) + struct.pack(f"<{len(tokens)}i", *tokens)
    path.write_bytes(head + logits.astype("<f4").tobytes())


def hf_config(m):
    shared = dict(dtype="bfloat16", vocab_size=V, hidden_size=D, intermediate_size=F, num_hidden_layers=len(m.layers), head_dim=HEAD,
                  num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, hidden_act="silu", rms_norm_eps=m.eps, max_position_embeddings=512,
                  attention_bias=False, tie_word_embeddings=False,
                  rope_parameters=dict(rope_type="default", rope_theta=THETA, partial_rotary_factor=m.rotated / HEAD))
    mixture = dict(n_routed_experts=EXPERTS, num_experts_per_tok=USED, moe_intermediate_size=EXPERT_F, norm_topk_prob=True,
                   routed_scaling_factor=EXPERT_SCALE, n_group=1, topk_group=1)
    if m is MIMO:
        turns = {kind: dict(rope_type="default", rope_theta=theta, partial_rotary_factor=m.rotated / HEAD)
                 for kind, theta in (("full_attention", THETA), ("sliding_attention", WINDOW_THETA))}
        return dict(shared, **mixture, architectures=["MiMoV2FlashForCausalLM"], model_type="mimo_v2_flash", layer_types=m.layers,
                    mlp_layer_types=m.sparse_from * ["dense"] + (len(m.layers) - m.sparse_from) * ["sparse"], v_head_dim=V_HEAD,
                    sliding_window=WINDOW, attention_value_scale=VALUE_SCALE, rope_parameters=turns)
    if m.predicts == "latent_attention":
        index = dict(index_n_heads=INDEX_HEADS, index_head_dim=INDEX_DIM, index_topk=INDEX_TOP) if m is DEEPSEEK_INDEX else {}
        name = "V32" if m is DEEPSEEK_INDEX else "V3"
        return dict(shared, **mixture, **index, architectures=[f"Deepseek{name}ForCausalLM"], model_type=f"deepseek_{name.lower()}",
                    num_nextn_predict_layers=1, first_k_dense_replace=m.sparse_from, n_shared_experts=1, q_lora_rank=Q_LORA,
                    kv_lora_rank=KV_LORA, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE, v_head_dim=V_HEAD, num_key_value_heads=HEADS,
                    head_dim=ROPE, rope_parameters=dict(rope_type="default", rope_theta=THETA))
    if m is GLM:
        return dict(shared, architectures=["Glm4MoeForCausalLM"], model_type="glm4_moe", num_nextn_predict_layers=1, use_qk_norm=True,
                    first_k_dense_replace=m.sparse_from, n_routed_experts=EXPERTS, num_experts_per_tok=USED, n_shared_experts=1,
                    moe_intermediate_size=EXPERT_F, norm_topk_prob=True, routed_scaling_factor=EXPERT_SCALE, n_group=1, topk_group=1)
    return dict(shared, architectures=["Qwen3_5ForCausalLM"], model_type="qwen3_5_text", layer_types=m.layers, linear_conv_kernel_dim=TAPS,
                linear_key_head_dim=DK, linear_value_head_dim=DV, linear_num_key_heads=DELTA_HEADS, linear_num_value_heads=DELTA_HEADS,
                mtp_num_hidden_layers=1)


def write_hf(m, directory, weights):
    config = hf_config(m)
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, value in sorted(weights.items()):
        halves = (value.view(np.uint32) >> 16).astype("<u2").tobytes()
        header[name] = dict(dtype="BF16", shape=list(value.shape), data_offsets=[len(data), len(data) + len(halves)])
        data += halves
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


GGUF_NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm", "mlp.gate_proj": "ffn_gate",
              "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
              "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
              "self_attn.k_norm": "attn_k_norm", "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate",
              "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.conv1d": "ssm_conv1d",
              "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out", "mlp.gate": "ffn_gate_inp",
              "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps", "mlp.experts.down_proj": "ffn_down_exps",
              "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
              "mlp.shared_experts.down_proj": "ffn_down_shexp", "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
              "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
              "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b", "self_attn.indexer.wq_b": "indexer.attn_q_b",
              "self_attn.indexer.wk": "indexer.attn_k", "self_attn.indexer.k_norm": "indexer.k_norm",
              "self_attn.indexer.weights_proj": "indexer.proj"}
GGUF_GLOBAL = {"model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight", "model.norm.weight": "output_norm.weight"}


def gguf_tensor(m, name, value):
    """Under its name there and with its values there: norms with their offset, -exp(A_log), one row of taps per channel."""
    past = f"blk.{len(m.layers)}.nextn."
    names = GGUF_GLOBAL | {m.matrix: past + "eh_proj.weight", m.embedding_norm: past + "enorm.weight", m.hidden_norm: past + "hnorm.weight",
                           m.norm: past + "shared_head_norm.weight"}
    if value.ndim == 1 and "norm" in name and "linear_attn" not in name:
        value = (m.offset + value.astype(np.float64)).astype(np.float32)
    if name in names:
        return names[name], value
    number, rest = name.replace(m.layer, f"model.layers.{len(m.layers)}.").split(".", 3)[2:]
    if rest == "linear_attn.A_log":
        return f"blk.{number}.ssm_a", -np.exp(value.astype(np.float64)).astype(np.float32)
    if rest == "linear_attn.dt_bias":
        return f"blk.{number}.ssm_dt.bias", value
    if rest == "mlp.gate.e_score_correction_bias":
        return f"blk.{number}.exp_probs_b.bias", value
    if rest.endswith("k_norm.bias"):
        return f"blk.{number}.indexer.k_norm.bias", value
    if rest == "post_attention_layernorm.weight" and m.predicts == "latent_attention":
        return f"blk.{number}.ffn_norm.weight", value
    return f"blk.{number}.{GGUF_NAMES[rest.removesuffix('.weight')]}.weight", value[:, 0] if "conv1d" in rest else value


def stacked(weights):
    """With the experts of a layer as one tensor."""
    joined = {}
    for name, value in sorted(weights.items()):
        before, found, rest = name.partition(".experts.")
        if found:
            joined.setdefault(f"{before}.experts.{rest.split('.', 1)[1]}", []).append(value)
        else:
            joined[name] = value
    return {name: np.stack(value) if isinstance(value, list) else value for name, value in joined.items()}


def add_tokenizer(writer):
    """A token for every byte, so that the file can be served."""
    texts = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL] + 256 * [gguf.TokenType.BYTE]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(texts + [f"<unused{n}>" for n in range(V - len(texts))])
    writer.add_token_scores([0.0] * V)
    writer.add_token_types(kinds + (V - len(kinds)) * [gguf.TokenType.UNUSED])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)


def write_gguf(m, directory, weights):
    prefix = m.architecture
    writer = gguf.GGUFWriter(directory / "model.gguf", prefix)
    numbers = {"block_count": len(m.layers) + 1, "nextn_predict_layers": 1, "context_length": 512, "embedding_length": D,
               "feed_forward_length": F, "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "attention.key_length": HEAD,
               "attention.value_length": HEAD, "rope.dimension_count": m.rotated}
    if m.predicts == "latent_attention":
        numbers |= {"attention.head_count_kv": HEADS, "attention.key_length": NOPE + ROPE, "attention.value_length": V_HEAD,
                    "attention.q_lora_rank": Q_LORA, "attention.kv_lora_rank": KV_LORA}
    if m is DEEPSEEK_INDEX:
        numbers |= {"attention.indexer.head_count": INDEX_HEADS, "attention.indexer.key_length": INDEX_DIM,
                    "attention.indexer.top_k": INDEX_TOP}
    if m.sparse_from < len(m.layers):
        numbers |= {"expert_count": EXPERTS, "expert_used_count": USED, "expert_feed_forward_length": EXPERT_F, "expert_shared_count": 1,
                    "leading_dense_block_count": m.sparse_from, "expert_gating_func": 2}
        writer.add_float32(f"{prefix}.expert_weights_scale", EXPERT_SCALE)
        writer.add_bool(f"{prefix}.expert_weights_norm", True)
    else:
        numbers |= {"full_attention_interval": 2, "ssm.state_size": DK, "ssm.group_count": DELTA_HEADS, "ssm.time_step_rank": DELTA_HEADS,
                    "ssm.inner_size": DELTA_HEADS * DV, "ssm.conv_kernel": TAPS}
    for key, value in numbers.items():
        writer.add_uint32(f"{prefix}.{key}", value)
    writer.add_float32(f"{prefix}.rope.freq_base", THETA)
    writer.add_float32(f"{prefix}.attention.layer_norm_rms_epsilon", m.eps)
    add_tokenizer(writer)
    for name, value in stacked(weights).items():
        stored, value = gguf_tensor(m, name, value)
        if value.ndim == 1 or "conv1d" in stored or "gate_inp" in stored:
            writer.add_tensor(stored, np.ascontiguousarray(value))
        else:
            halves = (np.ascontiguousarray(value).view(np.uint32) >> 16).astype(np.uint16)
            writer.add_tensor(stored, halves.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write(m):
    weights = make_weights(m)
    exact = {name: value.astype(np.float64) for name, value in weights.items()}
    tokens = RNG.integers(3, V, TOKENS)
    states = model_states(m, tokens, exact)
    logits = states @ exact["lm_head.weight"].T
    foreseen = norm(predictor_states(m, tokens, shifted(states), exact), exact[m.norm], m.offset, m.eps) @ exact["lm_head.weight"].T
    print(m.name, "of the next tokens the predictor names", (foreseen.argmax(1) == logits.argmax(1))[1:].mean())
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / m.name
        directory.mkdir()
        write_hf(m, directory, weights)
        if m.architecture:
            write_gguf(m, directory, weights)
        write_golden(directory / "golden.bin", tokens, logits)
        write_golden(directory / "predictor.bin", tokens[1:], foreseen[1:])
        write_golden(directory / "predictor_ahead.bin", *greedy(m, tokens[:AHEAD_OF], states[:AHEAD_OF], exact, 5))
        packed = subprocess.run(["tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "-c", m.name], cwd=scratch, check=True,
                                capture_output=True).stdout
        (OUT / f"{m.name}.tar.xz").write_bytes(subprocess.run(["xz", "-9e"], input=packed, check=True, capture_output=True).stdout)


if __name__ == "__main__":
    write(QWEN)
    write(GLM)
    write(MIMO)
    write(DEEPSEEK)
    write(DEEPSEEK_INDEX)
