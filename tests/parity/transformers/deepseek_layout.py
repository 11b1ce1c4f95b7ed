"""Directories of DeepSeek models as DeepSeek's own files have them, made of those that transformers saves.

V3 and V3.2: FP8 in square blocks (theirs have 128 rows) with an F32 scale in NAME_scale_inv. V4: names of its own, FP8 in such blocks with a power of
two (E8M0) in .scale, and experts so too or in MXFP4: two codes a byte, a power of two per 32 of a row; keys of config.json by which
the class finds out what transformers writes in full.
"""
import json

import numpy
import torch
from safetensors.torch import load_file, save_file

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
F32_OF_V4 = ("attn_sink", ".ape", "gate.bias", "hc_attn_", "hc_ffn_", "hc_head_")
RATIOS = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
V4_WRITTEN_OUT = ("compress_rates", "dtype", "layer_types", "mlp_bias", "mlp_layer_types", "output_router_logits", "pad_token_id",
                  "partial_rotary_factor", "rope_parameters", "router_aux_loss_coef", "router_jitter_noise")


def power_of_two(scale):
    return torch.exp2(torch.ceil(torch.log2(scale)))


def to_bf16(exact):
    """float64 to bfloat16 with one rounding; torch rounds to float32 on the way. The float32 is cut off, its last bit set if anything
    was lost, so that the second rounding sees on which side of a tie the value lies."""
    exact = exact.numpy()
    near = exact.astype(numpy.float32)
    bits = near.view(numpy.uint32) - (numpy.abs(near.astype(numpy.float64)) > numpy.abs(exact)) | (near.astype(numpy.float64) != exact)
    return torch.from_numpy(bits.astype(numpy.uint32).view(numpy.float32)).to(torch.bfloat16)


def fp8(weight, block, powers):
    """Codes, scales and exact values."""
    rows, columns = weight.shape
    whole = torch.zeros(-(-rows // block) * block, -(-columns // block) * block)
    whole[:rows, :columns] = weight.float()
    top = whole.reshape(whole.shape[0] // block, block, -1, block).abs().amax((1, 3)) / 448
    scale = power_of_two(top) if powers else top
    each = scale.repeat_interleave(block, 0).repeat_interleave(block, 1)[:rows, :columns]
    codes = (weight.float() / each).to(torch.float8_e4m3fn)
    return codes, scale.to(torch.float8_e8m0fnu) if powers else scale, codes.double() * each.double()


def mxfp4(weight):
    rows = weight.float().reshape(weight.shape[0], -1, 32)
    scale = power_of_two(rows.abs().amax(2) / 6)
    scaled = rows / scale[:, :, None]
    codes = (scaled.abs()[..., None] - E2M1).abs().argmin(-1)
    codes = (codes + 8 * (scaled < 0)).reshape(weight.shape).to(torch.uint8)
    values = torch.where(codes >= 8, -E2M1[(codes & 7).long()], E2M1[(codes & 7).long()])
    return ((codes[:, 0::2] | codes[:, 1::2] << 4).view(torch.int8), scale.to(torch.float8_e8m0fnu),
            values.double() * scale.double().repeat_interleave(32, 1))


def is_fp8(name):
    parts = (".wq_a.", ".wq_b.", ".attn.wkv.", ".wo_a.", ".wo_b.", ".w1.", ".w2.", ".w3.", "_proj.weight", "kv_a_proj_with_mqa.", ".wk.")
    return any(part in name for part in parts) and "weights_proj" not in name


def own_name(name):
    name = name.removeprefix("model.")
    for saved, own in (("embed_tokens.", "embed."), ("hc_head.hc_", "hc_head_"), (".attn.norm.", ".attn.kv_norm.")):
        name = name.replace(saved, own)
    return name


def config_of_v4(config, experts):
    rope = config["rope_parameters"]["compress"]
    scaling = {"type": rope["rope_type"], **{key: rope[key] for key in ("factor", "original_max_position_embeddings")}}
    own = {key: value for key, value in config.items() if key not in V4_WRITTEN_OUT}
    return {**own, "compress_ratios": [*(RATIOS[kind] for kind in config["layer_types"]), 0], "expert_dtype": experts,
            "num_hash_layers": config["mlp_layer_types"].count("hash_moe"), "rope_scaling": {"beta_fast": 32, "beta_slow": 1, **scaling},
            "topk_method": "noaux_tc", "torch_dtype": config["dtype"]}


def rewrite(directory, block=128, experts="fp8", plain=None):
    """Writes `directory` anew in DeepSeek's layout; `plain` gets the same values in BF16, as transformers saves them."""
    config = json.loads((directory / "config.json").read_text())
    v4 = config["model_type"] == "deepseek_v4"
    stored, values = {}, {}
    for name, tensor in load_file(directory / "model.safetensors").items():
        own = own_name(name) if v4 else name
        if is_fp8(name):
            packed = experts == "fp4" and ".experts." in name
            codes, scale, exact = mxfp4(tensor) if packed else fp8(tensor, block, powers=v4)
            stored[own] = codes
            stored[own.removesuffix(".weight") + ".scale" if v4 else own + "_scale_inv"] = scale
            values[name] = to_bf16(exact)
        else:
            stored[own] = tensor.float() if v4 and any(part in own for part in F32_OF_V4) else tensor
            values[name] = tensor
    if plain is not None:
        plain.mkdir()
        (plain / "config.json").write_text(json.dumps(config))
        save_file({name: tensor.contiguous() for name, tensor in values.items()}, plain / "model.safetensors")
    save_file({name: tensor.contiguous() for name, tensor in stored.items()}, directory / "model.safetensors")
    quantization = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [block, block]}
    if v4:
        config = config_of_v4(config, experts)
        quantization["scale_fmt"] = "ue8m0"
    (directory / "config.json").write_text(json.dumps({**config, "quantization_config": quantization}, indent=2))
