"""Writes tests/golden/embeddings/NAME.tar.xz: tiny random models of embeddings and of scores, and the vectors that transformers makes
of a few inputs in float64, pooled as Sentence Transformers pools and not made one long; and the same weights as GGUF, under the
names that the gguf package has for them.

    build/parity-venv/bin/python tests/parity/transformers/make_embeddings.py [NAME...]

vectors.bin, little-endian: `GLE1`, u32 inputs, u32 width, and for each input u32 n, i32 tokens[n], f32 vector[width]. A token of a
pair's second text has 1 in bits 24 and up.
"""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

OUT = Path(__file__).parents[2] / "golden/embeddings"
BASE = dict(vocab_size=128, num_hidden_layers=2, max_position_embeddings=128, initializer_range=0.08)
LENGTHS = (1, 2, 17, 63, 64, 65, 100)
TYPE_SHIFT = 24
ANSWERS = {"true_token_id": 77, "false_token_id": 12}

SMALL = dict(hidden_size=64, intermediate_size=96, num_attention_heads=4)
WIDE = dict(hidden_size=96, intermediate_size=160, num_attention_heads=6, num_hidden_layers=3)
QWEN = dict(**SMALL, num_key_value_heads=2, head_dim=32, tie_word_embeddings=True)
QWEN_WIDE = dict(**WIDE, num_key_value_heads=1, head_dim=16)
ROBERTA = dict(max_position_embeddings=130, type_vocab_size=1)
# Windows of 17 and 9 rows, of which 8 and 4 are on either side.
GEMMA = dict(**SMALL, num_key_value_heads=1, head_dim=32, sliding_window=16, query_pre_attn_scalar=32, num_hidden_layers=4,
             sliding_window_pattern=3, use_bidirectional_attention=True)
GEMMA_WIDE = dict(hidden_size=96, intermediate_size=128, num_attention_heads=3, num_key_value_heads=3, head_dim=16, sliding_window=8,
                  query_pre_attn_scalar=20, num_hidden_layers=3, sliding_window_pattern=2, use_bidirectional_attention=True)
SCORES = dict(num_labels=1, pad_token_id=0)

# name: (configuration class, model class, how rows become one, configuration)
MODELS = {
    "qwen3_last": ("Qwen3Config", "AutoModel", "lasttoken", QWEN),
    "qwen3_mean": ("Qwen3Config", "AutoModel", "mean_tokens", QWEN_WIDE),
    "bert_mean": ("BertConfig", "AutoModel", "mean_tokens", SMALL),
    "bert_cls": ("BertConfig", "AutoModel", "cls_token", dict(**WIDE, hidden_act="gelu_new", layer_norm_eps=1e-6)),
    "roberta_mean": ("RobertaConfig", "AutoModel", "mean_tokens", dict(**WIDE, **ROBERTA)),
    "nomic_mean": ("NomicBertConfig", "AutoModel", "mean_tokens", SMALL),
    "nomic_cls": ("NomicBertConfig", "AutoModel", "cls_token",
                  dict(hidden_size=96, intermediate_size=160, num_attention_heads=2, num_hidden_layers=3)),
    "embeddinggemma": ("Gemma3TextConfig", "AutoModel", "mean_tokens", GEMMA),
    "embeddinggemma_wide": ("Gemma3TextConfig", "AutoModel", "mean_tokens", GEMMA_WIDE),
    "bert_rank": ("BertConfig", "AutoModelForSequenceClassification", "score", dict(**SMALL, **SCORES)),
    "roberta_rank": ("RobertaConfig", "AutoModelForSequenceClassification", "score", dict(**WIDE, **ROBERTA, **SCORES)),
    "qwen3_rank": ("Qwen3Config", "AutoModelForSequenceClassification", "score", dict(**QWEN_WIDE, **SCORES)),
    "qwen3_answers": ("Qwen3Config", "AutoModelForCausalLM", "answers", QWEN),
}
# Linear layers behind the pooling: (elements in, out, bias).
DENSE = {"embeddinggemma": [(64, 160, False), (160, 64, False)], "embeddinggemma_wide": [(96, 48, True)]}


def build(name):
    config_class, model_class, how, changes = MODELS[name]
    config = getattr(transformers, config_class)(**{**BASE, **changes})
    torch.manual_seed(len(name) * 1009 + config.hidden_size)
    model = getattr(transformers, model_class).from_config(config).to(torch.bfloat16)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.ndim == 1:
                centre = 0.0 if key.endswith("bias") or "Gemma" in config_class else 1.0
                parameter.copy_(centre + 0.2 * torch.randn(parameter.shape))
    return model.eval(), how


def write_modules(name, directory, how, width):
    if how == "answers":
        (directory / "1_LogitScore").mkdir()
        (directory / "1_LogitScore/config.json").write_text(json.dumps(ANSWERS))
    if how in ("answers", "score"):
        return []
    modes = ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
    (directory / "1_Pooling").mkdir()
    (directory / "1_Pooling/config.json").write_text(json.dumps(
        {"word_embedding_dimension": width, **{f"pooling_mode_{mode}": mode == how for mode in modes}}))
    layers = []
    for number, (into, out, bias) in enumerate(DENSE.get(name, [])):
        tanh = bias  # one of each
        layer = torch.nn.Linear(into, out, bias=bias).to(torch.bfloat16)
        target = directory / f"{number + 2}_Dense"
        target.mkdir()
        (target / "config.json").write_text(json.dumps(
            {"in_features": into, "out_features": out, "bias": bias,
             "activation_function": "torch.nn.modules.activation.Tanh" if tanh else "torch.nn.modules.linear.Identity"}))
        save_file({f"linear.{key}": value.contiguous() for key, value in layer.state_dict().items()}, target / "model.safetensors")
        layers.append((layer.to(torch.float64), tanh))
    return layers


def vector_of(model, how, layers, tokens, types):
    ids = torch.tensor([tokens])
    with torch.no_grad():
        extra = {"token_type_ids": torch.tensor([types])} if any(types) else {}
        if how == "score":
            return model(ids, attention_mask=torch.ones_like(ids), **extra).logits[0]
        if how == "answers":
            logits = model(ids).logits[0, -1]
            return torch.stack([logits[ANSWERS["true_token_id"]], logits[ANSWERS["false_token_id"]]])
        rows = model(ids, **extra).last_hidden_state[0]
        vector = {"lasttoken": rows[-1], "mean_tokens": rows.mean(0), "cls_token": rows[0]}[how]
        for layer, tanh in layers:
            vector = torch.tanh(layer(vector)) if tanh else layer(vector)
        return vector


# name: (architecture, keys beside those that all have)
GGUF = {
    "qwen3_rank": ("QWEN3", {"attention.key_length": 16, "attention.value_length": 16, "pooling_type": 4}),
    "qwen3_answers": ("QWEN3", {"attention.key_length": 32, "attention.value_length": 32, "pooling_type": 4,
                                "classifier.output_labels": ["yes", "no"]}),
    "bert_mean": ("BERT", {"pooling_type": 1}),
    "bert_rank": ("BERT", {"pooling_type": 4}),
    "roberta_mean": ("BERT", {"pooling_type": 1}),
    "roberta_rank": ("BERT", {"pooling_type": 4}),
    "nomic_mean": ("NOMIC_BERT", {"pooling_type": 1, "rope.freq_base": 1000.0}),
    "nomic_cls": ("NOMIC_BERT", {"pooling_type": 2, "rope.freq_base": 1000.0}),
    "embeddinggemma": ("GEMMA_EMBEDDING", {"pooling_type": 1, "attention.key_length": 32, "attention.value_length": 32,
                                           "attention.sliding_window": 16, "attention.sliding_window_pattern": 3,
                                           "rope.freq_base": 1000000.0, "dense_2_feat_in": 64, "dense_2_feat_out": 160,
                                           "dense_3_feat_in": 160, "dense_3_feat_out": 64}),
}
HEADS = {"pooler.dense": "cls", "classifier.dense": "cls", "classifier.out_proj": "cls.output", "classifier": "cls.output",
         "score": "cls.output", "2_Dense.linear": "dense_2", "3_Dense.linear": "dense_3"}


def gguf_tensors(name, directory, names, config):
    how, tensors = MODELS[name][2], {}
    files = [("", directory / "model.safetensors"), *((f"{path.parent.name}.", path) for path in directory.glob("*_Dense/*.safetensors"))]
    for prefix, path in files:
        with safe_open(path, "pt") as stored:
            for key in stored.keys():
                value = stored.get_tensor(key)
                if not value.is_floating_point() or ("pooler" in key and how != "score"):
                    continue
                value = value.to(torch.float32).numpy()
                key = (prefix + key).removeprefix("bert.").removeprefix("roberta.")
                stem, ending = key.rsplit(".", 1)
                if "position_embeddings" in key and "Roberta" in MODELS[name][0]:
                    value = value[config.pad_token_id + 1:]
                if "Gemma" in MODELS[name][0] and key.endswith("norm.weight"):
                    value = value + 1
                if stem in HEADS:
                    tensors[f"{HEADS[stem]}.{ending}"] = value
                    continue
                if "Gemma" in MODELS[name][0] and not key.startswith("model."):
                    key = "model." + key
                tensors[names.get_name(key, try_suffixes=(".weight", ".bias"))] = value
    if how == "answers":
        table = tensors["token_embd.weight"]
        tensors["cls.output.weight"] = numpy.stack([table[ANSWERS["true_token_id"]], table[ANSWERS["false_token_id"]]])
    return tensors


def write_gguf(name, directory, config):
    arch, further = GGUF[name]
    number = getattr(gguf.MODEL_ARCH, arch)
    prefix = gguf.MODEL_ARCH_NAMES[number]
    writer = gguf.GGUFWriter(directory / "model.gguf", prefix)
    encoder = "BERT" in arch
    eps = config.layer_norm_eps if encoder else config.rms_norm_eps
    first_position = config.pad_token_id + 1 if "Roberta" in MODELS[name][0] else 0
    keys = {"block_count": config.num_hidden_layers, "context_length": config.max_position_embeddings - first_position, "embedding_length": config.hidden_size,
            "feed_forward_length": config.intermediate_size, "attention.head_count": config.num_attention_heads,
            f"attention.layer_norm_{'' if encoder else 'rms_'}epsilon": eps, **further}
    if encoder or arch == "GEMMA_EMBEDDING":
        keys["attention.causal"] = False
    if not encoder:
        keys["attention.head_count_kv"] = config.num_key_value_heads
    for key, value in keys.items():
        kinds = {list: writer.add_array, float: writer.add_float32, bool: writer.add_bool, int: writer.add_uint32}
        kinds[type(value)](f"{prefix}.{key}", value)
    for key, value in gguf_tensors(name, directory, gguf.get_tensor_name_map(number, config.num_hidden_layers), config).items():
        if value.ndim == 1 or key.startswith(("position_embd", "token_types")):
            writer.add_tensor(key, value)
        else:  # their values are those of BF16 already
            halves = (value.view(numpy.uint32) >> 16).astype(numpy.uint16)
            writer.add_tensor(key, halves.view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write(name, directory):
    model, how = build(name)
    model.save_pretrained(directory)
    layers = write_modules(name, directory, how, model.config.hidden_size)
    # Read back rather than widened: casting a model also casts its rotation frequencies, which no file holds.
    model = getattr(transformers, MODELS[name][1]).from_pretrained(directory, dtype=torch.float64, attn_implementation="eager").eval()
    has_types = getattr(model.config, "type_vocab_size", 1) > 1
    with open(directory / "vectors.bin", "wb") as out:
        for place, length in enumerate(LENGTHS):
            tokens = torch.randint(3, model.config.vocab_size, (length,)).tolist()
            types = [int(has_types and place % 2 == 0 and i >= length // 2) for i in range(length)]
            vector = vector_of(model, how, layers, tokens, types).tolist()
            if place == 0:
                out.write(b"GLE1" + struct.pack("<II", len(LENGTHS), len(vector)))
            rows = [token | kind << TYPE_SHIFT for token, kind in zip(tokens, types, strict=True)]
            out.write(struct.pack(f"<I{length}i{len(vector)}f", length, *rows, *vector))
    (directory / "generation_config.json").unlink(missing_ok=True)
    if name in GGUF:
        write_gguf(name, directory, model.config)
    print(name, model.config.model_type, vector[:2])


def main(names):
    for name in names or MODELS:
        with tempfile.TemporaryDirectory() as scratch:
            write(name, Path(scratch) / name)
            packed = subprocess.run(["tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "-c", name], cwd=scratch,
                                    check=True, capture_output=True).stdout
            (OUT / f"{name}.tar.xz").write_bytes(
                subprocess.run(["xz", "-9e"], input=packed, check=True, capture_output=True).stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
