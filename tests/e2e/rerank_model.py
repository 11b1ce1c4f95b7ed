"""Small models of scores: a cross-encoder with a WordPiece vocabulary of letters, and one that would say yes or no."""

import json
import string
import tarfile
from pathlib import Path

from byte_tokenizer import byte_tokenizer

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 128  # of the cross-encoder
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CONTEXT = 128


def _unpack(archive, names, directory):
    directory.mkdir(parents=True)
    with tarfile.open(ROOT / "tests/golden" / archive) as packed:
        for member in packed.getmembers():
            if Path(member.name).name in names:
                (directory / Path(member.name).name).write_bytes(packed.extractfile(member).read())


def words():
    letters = [*string.ascii_lowercase, *string.digits, *".,?!;:"]
    found = SPECIAL + letters + ["##" + letter for letter in letters[:36]]
    return found + [f"filler{i}" for i in range(VOCABULARY - len(found))]


def pieces(text):
    """What the tokenizer makes of lower-case words of letters and digits."""
    place = {word: i for i, word in enumerate(words())}
    return [place[("##" if i else "") + letter] for word in text.split() for i, letter in enumerate(word)]


def _special(token, kind):
    return {"SpecialToken": {"id": token, "type_id": kind}}


def write_cross_encoder(directory):
    """A BERT with a classification head of one label, as transformers saves it."""
    _unpack("embeddings/bert_rank.tar.xz", ("config.json", "model.safetensors"), directory)
    text = [{"Sequence": {"id": "A", "type_id": 0}}]
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False} for i, t in enumerate(SPECIAL)],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_special("[CLS]", 0), *text, _special("[SEP]", 0)],
            "pair": [_special("[CLS]", 0), *text, _special("[SEP]", 0), {"Sequence": {"id": "B", "type_id": 1}}, _special("[SEP]", 1)],
            "special_tokens": {t: {"id": t, "ids": [SPECIAL.index(t)], "tokens": [t]} for t in ("[CLS]", "[SEP]")},
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                  "vocab": {word: i for i, word in enumerate(words())}},
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (directory / "tokenizer_config.json").write_text(json.dumps({"pad_token": "[PAD]"}))


TEMPLATE = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}{% endfor %}{% if add_generation_prompt %}</s>{% endif %}"


def write_yes_or_no(directory):
    """A qwen3 that is judged by two of its logits, one token a byte, with a template that knows queries and documents."""
    _unpack("families/qwen3.tar.xz", ("config.json", "model.safetensors"), directory)
    (directory / "1_LogitScore").mkdir()
    (directory / "1_LogitScore/config.json").write_text(json.dumps({"true_token_id": 77, "false_token_id": 12}))
    (directory / "tokenizer.json").write_text(json.dumps(byte_tokenizer(["<pad>", "<s>", "</s>"], 384)))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "pad_token": "<pad>", "chat_template": TEMPLATE}))
