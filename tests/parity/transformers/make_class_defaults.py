"""Makes tests/golden/class_defaults.json: what the configuration classes of PyPI transformers write when nothing is said.

Run as `python tests/parity/transformers/make_class_defaults.py` with the packages of requirements.txt.
"""
import json
import logging
from pathlib import Path

from transformers import CONFIG_MAPPING

MODEL_TYPES = """apertus bert cohere cohere2 deepseek_v2 deepseek_v3 ernie4_5 ernie4_5_moe exaone4 gemma2 gemma3 gemma3_text glm4_moe
gpt_oss granite granite_swa granitemoehybrid hunyuan_v1_dense lfm2 lfm2_moe lfm3 llama llama4 llama4_text mamba2 mimo_v2_flash
minimax_m2 ministral3 mistral mixtral nemotron_h nomic_bert olmo2 olmo3 phi3 qwen2 qwen2_moe qwen3 qwen3_5 qwen3_5_moe qwen3_5_moe_text
qwen3_5_text qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe roberta seed_oss smollm3 stablelm starcoder2 gemma4_text kimi_linear
deepseek_v32 glm_moe_dsa deepseek_v4 glm4_moe_lite gemma glm4 arcee olmoe granitemoe granitemoeshared hunyuan_v1_moe dots1 exaone_moe minicpm3 gpt_neox falcon
gpt2 phi phimoe""".split()


def finite(value):
    """Infinities as the library writes them."""
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return {"__float__": "Infinity"} if value == float("inf") else value


# Of classes whose defaults are no model.
WHOLE = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "dots1": {"n_routed_experts": 128, "num_experts_per_tok": 6},
    "glm4_moe": {"head_dim": 128},
    "qwen3_vl": {"vision_config": {"out_hidden_size": 4096}},
    "qwen3_vl_moe": {"vision_config": {"out_hidden_size": 2048}},
}

logging.disable(logging.WARNING)
defaults = {}
for model_type in MODEL_TYPES:
    written = CONFIG_MAPPING[model_type](**WHOLE.get(model_type, {})).to_dict()
    defaults[model_type] = {key: finite(value) for key, value in written.items() if value is not None}
path = Path(__file__).parents[2] / "golden" / "class_defaults.json"
path.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(defaults[name], default=str)}" for name in MODEL_TYPES) + "\n}\n")
