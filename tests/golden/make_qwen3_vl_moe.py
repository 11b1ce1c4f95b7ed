#!/usr/bin/env python3
"""Makes families/qwen3_vl_moe.tar.xz with PyPI transformers and torch.  Usage: make_qwen3_vl_moe.py

A tiny random Qwen3-VL mixture as a Hugging Face directory (BF16), with its float64 logits over two images and text, in the
formats of the other families: golden.bin, pixels.bin, meta.json. Every second layer is dense.
"""
import json
import struct
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

HERE = Path(__file__).resolve().parent
IMAGE, VIDEO, START, END = 5, 6, 3, 4
GRIDS = [(1, 4, 6), (1, 4, 2)]
SEED = 1

TEXT = dict(vocab_size=160, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=512, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2,
            pad_token_id=0, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, mlp_only_layers=[1],
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[4, 2, 2], mrope_interleaved=True))
VISION = dict(depth=3, hidden_size=16, intermediate_size=40, num_heads=2, patch_size=4, temporal_patch_size=2,
              spatial_merge_size=2, out_hidden_size=32, num_position_embeddings=64, deepstack_visual_indexes=[0, 2])


def build():
    config = transformers.Qwen3VLMoeConfig(text_config=TEXT, vision_config=VISION, image_token_id=IMAGE, video_token_id=VIDEO,
                                           vision_start_token_id=START, vision_end_token_id=END, tie_word_embeddings=False)
    config._attn_implementation = config._experts_implementation = "eager"
    torch.manual_seed(SEED)
    model = transformers.Qwen3VLMoeForConditionalGeneration(config).to(torch.bfloat16)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter, dtype=torch.float32)
            if parameter.ndim == 1:
                parameter.copy_((0.0 if name.endswith("bias") else 1.0) + 0.2 * noise)
            else:
                parameter.copy_(0.08 * noise)
    return model.eval()


def inputs():
    generator = torch.Generator().manual_seed(SEED)
    text = lambda n: torch.randint(7, TEXT["vocab_size"], (n,), generator=generator).tolist()  # noqa: E731
    ids = text(9)
    for _, height, width in GRIDS:
        ids += [START] + [IMAGE] * (height * width // 4) + [END] + text(11)
    rows = sum(t * h * w for t, h, w in GRIDS)
    pixels = torch.rand((rows, 3 * 2 * 4 * 4), generator=generator) * 2 - 1
    return torch.tensor([ids]), pixels


def run(directory, dtype, ids, pixels):
    model = transformers.Qwen3VLMoeForConditionalGeneration.from_pretrained(
        directory, dtype=dtype, attn_implementation="eager", experts_implementation="eager").eval()
    grids = torch.tensor(GRIDS)
    types = (ids == IMAGE).int()
    with torch.no_grad():
        positions, _ = model.model.get_rope_index(ids, mm_token_type_ids=types, image_grid_thw=grids)
        logits = model(input_ids=ids, pixel_values=pixels.to(dtype), image_grid_thw=grids, mm_token_type_ids=types,
                       use_cache=False).logits[0]
    return logits.double().numpy(), positions[:, 0].numpy()


def main():
    model = build()
    ids, pixels = inputs()
    count = ids.shape[1]
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "qwen3_vl_moe"
        model.save_pretrained(directory)
        for extra in directory.glob("generation_config.json"):
            extra.unlink()
        logits, positions = run(directory, torch.float64, ids, pixels)
        rounded, _ = run(directory, torch.float32, ids, pixels)
        golden = struct.pack("<4sII", b"GLD1", count, logits.shape[1]) + ids[0].numpy().astype("<i4").tobytes()
        (directory / "golden.bin").write_bytes(golden + logits.astype("<f4").tobytes())
        head = struct.pack("<4sI", b"GLV1", len(GRIDS)) + b"".join(struct.pack("<III", *grid) for grid in GRIDS)
        head += struct.pack("<II", *pixels.shape)
        (directory / "pixels.bin").write_bytes(head + pixels.numpy().astype("<f4").tobytes() + positions.astype("<i4").tobytes())
        (directory / "meta.json").write_text(json.dumps(
            {"family": "qwen3_vl_moe", "seed": SEED, "transformers": transformers.__version__, "torch": torch.__version__,
             "max_abs_logit": float(np.abs(logits).max()), "f32_vs_f64_max_abs": float(np.abs(logits - rounded).max()),
             "argmax": logits.argmax(1).tolist()}, indent=1) + "\n")
        with tarfile.open(HERE / "families/qwen3_vl_moe.tar.xz", "w:xz", preset=9) as archive:
            def anonymous(info):
                info.uid = info.gid = info.mtime = 0
                info.uname = info.gname = ""
                return info
            archive.add(directory, "qwen3_vl_moe", filter=anonymous)
        print({path.name: path.stat().st_size for path in directory.iterdir()})


main()
