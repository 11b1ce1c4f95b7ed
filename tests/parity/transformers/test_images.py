"""Images: how files become patches, and what models that see make of them, against transformers.

Run by `make parity`. Resizing: Pillow's bytes when the rows come first (the order of both library backends but for the newest
Pillow), at most 2 of 255 away from torchvision's. Logits: images of a size that needs no resizing, 5e-5 of the largest logit.
"""
import os
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyPI torch is not installed: run this suite by `make parity`")
transformers = pytest.importorskip("transformers", reason="PyPI transformers is not installed: run this suite by `make parity`")
pytest.importorskip("torchvision", reason="PyPI torchvision is not installed: run this suite by `make parity`")
from PIL import Image, ImageOps  # noqa: E402
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize  # noqa: E402
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor  # noqa: E402

BIN = Path(os.environ.get("LLORCH_BIN_DIR", "build/release/bin"))
LLORCH, CUT = BIN / "llorch", BIN.parent / "test" / "cut_image"
FILES = Path(__file__).resolve().parents[2] / "golden" / "images"
LEVEL = 1 / 127.5  # of a pixel, normalised
TOLERANCE = 5e-5   # of the largest logit
IMAGE, VIDEO, START, END = 5, 6, 3, 4
HALVES = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3)


def picture(width, height, seed):
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([4 * x % 256, (3 * y + x) % 256, np.where((x // 7 + y // 5) % 2, 230, 20)], axis=-1)
    noise = np.random.default_rng(seed).integers(-12, 13, pixels.shape)
    return Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8))


def ours(path, tmp_path, patch, low, high):
    out = tmp_path / "rows"
    done = subprocess.run([CUT, path, str(patch), "2", "2", str(low), str(high), out], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    height, width = struct.unpack("<II", out.read_bytes()[:8])
    return (height, width), np.frombuffer(out.read_bytes()[8:], "<f4").reshape(height * width, -1)


def shown(path):
    with Image.open(path) as image:
        return ImageOps.exif_transpose(image).convert("RGB")


# Photographs shrink and grow by the area bounds, long ones by the aspect ratio.
SIZES = [(640, 480), (333, 517), (1200, 90), (64, 64), (2000, 1500), (31, 997)]
RULES = [(16, 65536, 16777216), (14, 3136, 1003520), (16, 1024, 40000)]


@pytest.mark.parametrize("patch,low,high", RULES)
@pytest.mark.parametrize("size", SIZES)
def test_patches_of_any_size(size, patch, low, high, tmp_path):
    path = tmp_path / "picture.png"
    image = picture(*size, seed=size[0])
    image.save(path)
    grid, rows = ours(path, tmp_path, patch, low, high)
    settings = dict(patch_size=patch, size={"shortest_edge": low, "longest_edge": high}, **HALVES)
    reference = Qwen2VLImageProcessor(**settings)(images=[image], return_tensors="np")
    assert grid == tuple(reference["image_grid_thw"][0][1:])
    difference = np.abs(rows - reference["pixel_values"])
    assert difference.max() <= 2.02 * LEVEL
    assert (difference > LEVEL / 2).mean() < 0.01
    # With Pillow, axis by axis.
    height, width = smart_resize(size[1], size[0], 2 * patch, low, high)
    turned = image.resize((width, size[1]), Image.Resampling.BICUBIC).resize((width, height), Image.Resampling.BICUBIC)
    exact = Qwen2VLImageProcessorPil(**settings, do_resize=False)(images=[turned], return_tensors="np")
    assert np.abs(rows - exact["pixel_values"]).max() <= 1e-6


@pytest.mark.parametrize("path", sorted(FILES.glob("*.[jp][pn]g")), ids=lambda path: path.name)
def test_patches_of_every_kind_of_file(path, tmp_path):
    _, rows = ours(path, tmp_path, 4, 64, 1 << 20)
    reference = Qwen2VLImageProcessor(patch_size=4, size={"shortest_edge": 64, "longest_edge": 1 << 20}, **HALVES)
    assert np.abs(rows - reference(images=[shown(path)], return_tensors="np")["pixel_values"]).max() <= 2.02 * LEVEL


TEXT = dict(vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=512, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2,
            pad_token_id=0, rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[4, 2, 2],
                                                 mrope_interleaved=True))
VISION = dict(depth=3, hidden_size=32, intermediate_size=48, num_heads=2, patch_size=4, temporal_patch_size=2,
              spatial_merge_size=2, out_hidden_size=64, num_position_embeddings=64, deepstack_visual_indexes=[0, 2])
EXPERTS = dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24)
MODELS = {
    "dense": ("Qwen3VL", {}, {}),
    "mixture": ("Qwen3VLMoe", EXPERTS, {}),
    "mixture_with_dense_layers": ("Qwen3VLMoe", dict(EXPERTS, mlp_only_layers=[0, 2]), {}),
    "square_experts": ("Qwen3VLMoe", dict(EXPERTS, moe_intermediate_size=32), {}),
    "no_deepstack": ("Qwen3VL", {}, dict(deepstack_visual_indexes=[])),
    "one_tower_head": ("Qwen3VL", dict(num_hidden_layers=1), dict(num_heads=1, deepstack_visual_indexes=[1])),
}


def build(name):
    kind, text, vision = MODELS[name]
    config = getattr(transformers, f"{kind}Config")(
        text_config={**TEXT, **text}, vision_config={**VISION, **vision}, image_token_id=IMAGE, video_token_id=VIDEO,
        vision_start_token_id=START, vision_end_token_id=END, tie_word_embeddings=False)
    config._attn_implementation = config._experts_implementation = "eager"
    torch.manual_seed(len(name))
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).to(torch.bfloat16)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            noise = torch.randn_like(parameter, dtype=torch.float32)
            one = 0.0 if key.endswith("bias") else 1.0
            parameter.copy_(one + 0.2 * noise if parameter.ndim == 1 else 0.08 * noise)
    return model.eval()


@pytest.mark.parametrize("name", sorted(MODELS))
def test_logits_of_pictures(name, tmp_path):
    directory = tmp_path / "model"
    model = build(name)
    model.save_pretrained(directory)
    processor = Qwen2VLImageProcessor(patch_size=4, size={"shortest_edge": 64, "longest_edge": 4096}, **HALVES)
    processor.save_pretrained(directory)
    paths, images = [], []
    for index, size in enumerate([(32, 24), (16, 40)]):
        images.append(picture(*size, seed=index))
        paths.append(tmp_path / f"{index}.png")
        images[-1].save(paths[-1])
    cut = processor(images=images, return_tensors="pt")
    generator = torch.Generator().manual_seed(1)
    short, full = [], []
    for _, height, width in cut["image_grid_thw"].tolist():
        words = torch.randint(7, TEXT["vocab_size"], (9,), generator=generator).tolist()
        short += words + [START, IMAGE, END]
        full += words + [START] + [IMAGE] * (height * width // 4) + [END]
    short, full = short + [9, 8], torch.tensor([full + [9, 8]])
    model = type(model).from_pretrained(directory, dtype=torch.float64, attn_implementation="eager",
                                        experts_implementation="eager").eval()
    with torch.no_grad():
        expected = model(input_ids=full, pixel_values=cut["pixel_values"].double(), image_grid_thw=cut["image_grid_thw"],
                         mm_token_type_ids=(full == IMAGE).int(), use_cache=False).logits[0].numpy()
    out = tmp_path / "logits"
    done = subprocess.run([LLORCH, "model", "logits", directory, "--tokens", ",".join(map(str, short)), "--out", out, "--kv-dtype",
                           "f32", "--image", paths[0], "--image", paths[1]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    got = np.fromfile(out, dtype="<f4").reshape(full.shape[1], -1)
    assert np.abs(got - expected).max() <= TOLERANCE * np.abs(expected).max()
    assert (got.argmax(1) == expected.argmax(1)).all()
