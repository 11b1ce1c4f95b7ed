"""Checkpoints as quantizers write them: every weight as the library that wrote it reads it, bit for bit.

DeepSeek's layouts are read by transformers too, whose weights are those of a plain model, bit for bit (V3's F32 scales: to a rounding to
BF16); the engine's logits of both have the same bits where experts are no four-bit floats.
compressed-tensors (PyPI) writes and reads its own formats here. GPTQ's and AWQ's libraries need a GPU to import, so their words are
packed by the few lines below, after their published layout, and the expected values are (code - zero) * scale.
Run by `make parity`.
"""
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyPI torch is not installed: run this suite by `make parity`")
transformers = pytest.importorskip("transformers", reason="PyPI transformers is not installed: run this suite by `make parity`")
gguf = pytest.importorskip("gguf", reason="PyPI gguf is not installed: run this suite by `make parity`")
pytest.importorskip("compressed_tensors", reason="PyPI compressed-tensors is not installed: run this suite by `make parity`")
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor  # noqa: E402
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor  # noqa: E402
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from deepseek_layout import rewrite, to_bf16  # noqa: E402
from test_shapes import build, logits_of  # noqa: E402

LLORCH = Path(os.environ.get("LLORCH_BIN_DIR", "build/release/bin")) / "llorch"
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def scheme(**weights):
    return QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights))


def rounded(weight, group, bits, symmetric):
    """Codes from 0, zeros and F16 scales, by rows: weight is about (code - zero) * scale."""
    grouped = weight.float().reshape(weight.shape[0], -1, group)
    top = 2**bits - 1
    if symmetric:
        zero = torch.full(grouped.shape[:2], 2.0 ** (bits - 1))
        scale = grouped.abs().amax(2) / (2 ** (bits - 1) - 1)
    else:
        low, high = grouped.amin(2).clamp(max=0), grouped.amax(2).clamp(min=0)
        scale = (high - low) / top
        zero = (-low / scale).round().clamp(1, top)
    scale = scale.to(torch.float16)
    codes = (grouped / scale.float()[:, :, None] + zero[:, :, None]).round().clamp(0, top)
    return codes.reshape(weight.shape).to(torch.int64), zero.to(torch.int64), scale


def value(codes, zero, scale, group_of):
    return (codes - zero[:, group_of]).to(torch.float32) * scale.float()[:, group_of]


def words(fields, bits):
    """[..., n] fields to [..., n * bits / 32] words, the first field lowest."""
    per_word = 32 // bits
    fields = fields.reshape(*fields.shape[:-1], -1, per_word)
    packed = (fields << (torch.arange(per_word) * bits)).sum(-1)
    return torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)


def gptq(name, weight, symmetric, act_order=False, group=32, bits=4):
    codes, zero, scale = rounded(weight, group, bits, symmetric)
    group_of = torch.arange(weight.shape[1]) // group
    if act_order:
        group_of = group_of[torch.randperm(len(group_of))]
    ones = sum(1 << (i * bits) for i in range(32 // bits))
    qzeros = (words(zero.T, bits).to(torch.int64) - ones) & 0xFFFFFFFF
    parts = {name + ".qweight": words(codes, bits).T.contiguous(), name + ".scales": scale.T.contiguous(),
             name + ".qzeros": torch.where(qzeros >= 2**31, qzeros - 2**32, qzeros).to(torch.int32),
             name + ".g_idx": group_of.to(torch.int32), name + ".bias": torch.zeros(weight.shape[0], dtype=torch.float16)}
    expected = value(codes, zero, scale, group_of)
    return parts, expected.half().float() if act_order else expected


def awq(name, weight, group=32):
    codes, zero, scale = rounded(weight, group, 4, False)
    turn = lambda matrix: words(matrix.T.reshape(matrix.shape[1], -1, 8)[:, :, AWQ_ORDER].reshape(matrix.shape[1], -1), 4)  # noqa: E731
    parts = {name + ".qweight": turn(codes), name + ".qzeros": turn(zero), name + ".scales": scale.T.contiguous()}
    return parts, value(codes, zero, scale, torch.arange(weight.shape[1]) // group)


def compressed(name, weight, bits=4, symmetric=True, group=32):
    codes, zero, scale = rounded(weight, group, bits, symmetric)
    offset = 2 ** (bits - 1)
    # A weight on its grid, so that the library finds these codes.
    state = {"weight": value(codes, zero, scale, torch.arange(weight.shape[1]) // group), "weight_scale": scale.float()}
    if not symmetric:
        state["weight_zero_point"] = (zero - offset).to(torch.int8)
    how = scheme(num_bits=bits, type="int", symmetric=symmetric, group_size=group, strategy="group")
    packed = PackedQuantizationCompressor.compress(state, how)
    expected = PackedQuantizationCompressor.decompress(dict(packed), how)["weight"].float()
    packed["weight_scale"] = packed["weight_scale"].half()
    return {f"{name}.{part}": tensor for part, tensor in packed.items()}, expected


def nvfp4(name, weight):
    how = scheme(num_bits=4, type="float", symmetric=True, group_size=16, strategy="tensor_group", scale_dtype=torch.float8_e4m3fn)
    top = weight.float().reshape(weight.shape[0], -1, 16).abs().amax(2) / 6
    whole = (448.0 / top.max()).reshape(1).float()
    scale = (top * whole).to(torch.float8_e4m3fn)
    packed = NVFP4PackedCompressor.compress({"weight": weight.float(), "weight_scale": scale.float(), "weight_global_scale": whole}, how)
    halves = torch.stack([packed["weight_packed"] & 15, packed["weight_packed"] >> 4], 2).reshape(weight.shape)
    levels = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    codes = torch.where(halves >= 8, -levels[halves.long() & 7], levels[halves.long() & 7])
    exact = codes * packed["weight_scale"].double().repeat_interleave(16, 1) / whole.double()
    return {f"{name}.{part}": tensor for part, tensor in packed.items()}, to_bf16(exact + 0.0).float()


def fp8_rows(name, weight):
    scale = (weight.float().abs().amax(1, keepdim=True) / 448).to(torch.bfloat16)
    codes = (weight.float() / scale.float()).to(torch.float8_e4m3fn)
    return ({name + ".weight": codes, name + ".weight_scale": scale},
            to_bf16(codes.double() * scale.double()).float())


KINDS = {
    "gptq_symmetric": (lambda n, w: gptq(n, w, True), dict(quant_method="gptq", bits=4, group_size=32, sym=True, desc_act=False)),
    "gptq_zeros": (lambda n, w: gptq(n, w, False), dict(quant_method="gptq", bits=4, group_size=32, sym=False)),
    "gptq_act_order": (lambda n, w: gptq(n, w, True, True), dict(quant_method="gptq", bits=4, group_size=32, sym=True, desc_act=True)),
    "gptq_8_bits": (lambda n, w: gptq(n, w, True, bits=8), dict(quant_method="gptq", bits=8, group_size=32, sym=True)),
    "awq": (awq, dict(quant_method="awq", bits=4, group_size=32, zero_point=True, version="gemm")),
    "compressed_symmetric": (compressed, dict(quant_method="compressed-tensors", format="pack-quantized")),
    "compressed_zeros": (lambda n, w: compressed(n, w, symmetric=False), dict(quant_method="compressed-tensors", format="pack-quantized")),
    "compressed_8_bits": (lambda n, w: compressed(n, w, bits=8), dict(quant_method="compressed-tensors", format="pack-quantized")),
    "nvfp4": (nvfp4, dict(quant_method="compressed-tensors", format="nvfp4-pack-quantized")),
    "fp8_rows": (fp8_rows, dict(quant_method="compressed-tensors", format="float-quantized")),
}


def as_gguf(directory, out):
    done = subprocess.run([LLORCH, "model", "quantize", directory, out, "--type", "F32", "--output-type", "F32", "--embedding-type",
                           "F32", "--allow-requantize"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {t.name: np.array(t.data) for t in gguf.GGUFReader(out).tensors}


# Widths of whole groups.
WIDTHS = {"llama": dict(intermediate_size=192), "qwen3_moe": dict(moe_intermediate_size=64)}


@pytest.mark.parametrize("family", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_reads_what_the_library_reads(kind, family, tmp_path):
    model, tokens = build(family, WIDTHS[family])
    model.save_pretrained(tmp_path / "plain")
    quantize, config_entry = KINDS[kind]
    stored, plain = {}, {}
    torch.manual_seed(11)
    for name, tensor in load_file(tmp_path / "plain" / "model.safetensors").items():
        if not name.endswith("_proj.weight"):
            stored[name] = plain[name] = tensor
            continue
        parts, expected = quantize(name.removesuffix(".weight"), tensor)
        stored.update({part: data.contiguous() for part, data in parts.items()})
        plain[name] = expected.contiguous()
    save_file(plain, tmp_path / "plain" / "model.safetensors")
    quantized = tmp_path / "quantized"
    quantized.mkdir()
    save_file(stored, quantized / "model.safetensors")
    config = json.loads((tmp_path / "plain" / "config.json").read_text())
    (quantized / "config.json").write_text(json.dumps({**config, "quantization_config": config_entry}))

    ours, theirs = as_gguf(quantized, tmp_path / "ours.gguf"), as_gguf(tmp_path / "plain", tmp_path / "theirs.gguf")
    assert {name for name in ours if not name.endswith(".bias")} == theirs.keys()
    for name, data in theirs.items():
        assert np.array_equal(data.view(np.uint32), ours[name].view(np.uint32)), name

    # The model runs. Quantized products round activations to a byte, which the plain model's do not.
    logits = logits_of(quantized, tokens, tmp_path)
    expected = logits_of(tmp_path / "plain", tokens, tmp_path)
    assert np.corrcoef(logits.ravel(), expected.ravel())[0, 1] > 0.99


LATENT = dict(num_hidden_layers=2, hidden_size=256, q_lora_rank=40, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
              n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, first_k_dense_replace=1, n_group=2, topk_group=1,
              num_attention_heads=4, num_key_value_heads=4, intermediate_size=256, vocab_size=192, max_position_embeddings=512,
              initializer_range=0.08)
COMPRESSED = dict(num_hidden_layers=4, hidden_size=256, num_attention_heads=4, num_key_value_heads=1, head_dim=64, q_lora_rank=40, o_groups=2,
                  o_lora_rank=64, sliding_window=10, hc_mult=3, hc_sinkhorn_iters=4, index_n_heads=3, index_head_dim=64, index_topk=6,
                  n_routed_experts=4, num_experts_per_tok=2, intermediate_size=64, swiglu_limit=0.25, partial_rotary_factor=0.25,
                  vocab_size=192, max_position_embeddings=512, initializer_range=0.08,
                  layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention",
                               "compressed_sparse_attention"], mlp_layer_types=["hash_moe", "hash_moe", "moe", "moe"],
                  rope_parameters=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16))
DEEPSEEK = {"v3": ("DeepseekV3Config", LATENT, "fp8"),
            "v32": ("DeepseekV32Config", dict(LATENT, index_topk=20, index_n_heads=4, index_head_dim=16), "fp8"),
            "v4": ("DeepseekV4Config", COMPRESSED, "fp8"), "v4_fp4": ("DeepseekV4Config", COMPRESSED, "fp4")}


@pytest.mark.parametrize("kind", DEEPSEEK)
def test_reads_deepseeks_own_layout(kind, tmp_path):
    config_class, sizes, experts = DEEPSEEK[kind]
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, config_class)(**sizes)).to(torch.bfloat16)
    for key, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.ndim == 1 and "inv_freq" not in key:
            tensor.data.copy_((0.0 if "bias" in key else 1.0) + 0.2 * torch.randn(tensor.shape))
        elif "tid2eid" in key:
            tensor.copy_(torch.randint(sizes["n_routed_experts"], tensor.shape))
    own, plain = tmp_path / "own", tmp_path / "plain"
    model.save_pretrained(own)
    rewrite(own, 128, experts, plain)
    read = lambda path, **how: transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **how).state_dict()  # noqa: E731
    theirs = read(own, quantization_config=transformers.FineGrainedFP8Config(dequantize=True))
    for name, expected in read(plain).items():
        tolerance = 2**-8 * expected.float().abs() if kind in ("v3", "v32") else 0
        assert ((theirs[name].float() - expected.float()).abs() <= tolerance).all(), name

    tokens = torch.randint(3, 192, (1, 160))
    ours, expected = logits_of(own, tokens, tmp_path), logits_of(plain, tokens, tmp_path)
    if experts == "fp8":
        assert np.array_equal(ours.view(np.uint32), expected.view(np.uint32))
    else:
        assert np.corrcoef(ours.ravel(), expected.ravel())[0, 1] > 0.99
