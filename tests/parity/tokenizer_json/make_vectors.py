#!/usr/bin/env python3
"""Trains one small tokenizer of every kind with PyPI tokenizers and writes what the library makes of many texts.

Usage: make_vectors.py DIRECTORY   (made with tokenizers 0.23.3; deterministic)
Per kind: DIRECTORY/KIND/tokenizer.json and cases.json: [{"text", "ids" (special tokens added and parsed), "plain" (special
tokens neither added nor parsed), "decoded" (of ids)}]. texts.json is shared by all.
"""
import json
import random
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
FOLD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = FOLD + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
QWEN2 = FOLD + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
WORD1 = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
WORD2 = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
SIGNS = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
GPT4O = WORD1 + FOLD + "?|" + WORD2 + FOLD + r"?|\p{N}{1,3}" + SIGNS
TEKKEN = WORD1 + "|" + WORD2 + r"|\p{N}" + SIGNS
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|" + SPACES).replace('\\"', '"')

WORDS = """the of and a to in he have it that for they I with as not on she at by this we you do but from or which one would
all will there say who make when can more if no man out other so what time up go about than into could state only new year
some take come these know see use get like then first any work now may such give over think most even find day also after way
many must look before great back through long where much should well people down own just because good each those feel seem
how high too place little world very still nation hand old life tell write become here show house both between need mean call
Tokenizer Encoder HTTPServer camelCase snake_case naïve café résumé Straße Größe ÉCOLE ŁÓDŹ Привет мир Москва здравствуйте
γειά σου κόσμε 你好 世界 中文 分词 日本語 ひらがな カタカナ 한국어 안녕하세요 مرحبا بالعالم שלום नमस्ते दुनिया สวัสดี""".split()
ODD = ["😀", "👩‍👩‍👧", "🇩🇪", "e\u0301", "a\u0308\u0323", "ﬁ", "Ⅷ", "½", "٣٤", "१२", "²", "\u00a0", "\u3000", "\u2028", "\u0085", "\u180e",
       "\u200b", "\u200d", "\ufeff", "\u0000", "\u0001", "ſ", "'ſ", "İ", "ǅ", "ʰ", "ⓐ", "＄", "！", "。", "…", "—", "€", "₿", "​", "\ufffd",
       "\U0001d54f", "\U00020000", "\ue000", "…", "‿", "_", "\t", "\r", "\r\n", "\n", "\n\n", "   ", " ", "  ", "'s", "'S", "'LL", "n't",
       "!!", "...", "://", "</", "#include", "==", "1", "12", "123", "1234567", "3.14", "<tool>", "<s>", "</s>", "<|end|>",
       " <strip> ", "word<word>word", " <word> ", "MiXeD", "<unk>", "<0x41", "▁", "▁▁a", "Ġ", "ĊĠ"]
SPECIAL = ["<unk>", "<s>", "</s>", "<|end|>"]


def texts():
    rng = random.Random(7)
    out = ["", " ", "  ", "\n", "a", " a", "a ", "\u00e9", "e\u0301", "I'll say 'tis he'd've DON'T", "x" * 300, " " * 50 + "x",
           "\n" * 20, "0123456789" * 3, "<s>", "<s></s>", "a<s>b</s>c", "<s", "<|end|><|end|>", "<tool><tool>", "a <strip>  b",
           "<word>", "(<word>)", "1<word>", "é<word>", "<norm>", " <norm>x", "ＮＦＫＣ ﬁ Å Å"]
    while len(out) < 260:
        count = rng.randrange(1, 14)
        parts = []
        for _ in range(count):
            roll = rng.random()
            if roll < 0.55:
                word = rng.choice(WORDS)
                parts.append(rng.choice([word, word.upper(), word.capitalize(), word]))
                if rng.random() < 0.8:
                    parts.append(" ")
            elif roll < 0.93:
                parts.append(rng.choice(ODD))
            else:
                c = rng.choice([rng.randrange(0x20, 0x250), rng.randrange(0x250, 0x3000), rng.randrange(0x3000, 0xD7FF),
                                rng.randrange(0x1F000, 0x1FA00)])
                parts.append(chr(c))
        out.append("".join(parts))
    return out


def corpus():
    rng = random.Random(11)
    lines = []
    for _ in range(3000):
        lines.append(" ".join(rng.choice(WORDS) for _ in range(rng.randrange(3, 20))) + rng.choice([".", "!", "\n", " 2024", "  "]))
    return lines


def byte_level(patterns, size=700, ignore_merges=False, normalizer=None, first=None, use_regex=False, prefix=False, template=True):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    steps = list(first or []) + [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if template:
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])])
    return tokenizer


def with_bytes(tokenizer, trainer):
    """Trains, then gives the vocabulary the 256 byte tokens that byte_fallback needs."""
    tokenizer.train_from_iterator(corpus(), trainer)
    data = json.loads(tokenizer.to_str())
    vocab = data["model"]["vocab"]
    rows = [f"<0x{b:02X}>" for b in range(256)]
    if isinstance(vocab, dict):
        for row in rows:
            vocab.setdefault(row, len(vocab))
    else:
        vocab.extend([row, -20.0] for row in rows)
    data["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(data))


def sentencepiece_bpe(normalizer, pre_tokenizer, strip):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=SPECIAL, show_progress=False, max_token_length=12)
    tokenizer = with_bytes(tokenizer, trainer)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


def unigram(byte_fallback, scheme, split=True):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=split)
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme, split=split)
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    if byte_fallback:
        tokenizer = with_bytes(tokenizer, trainer)
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(replacement="▁", prepend_scheme=scheme, split=split)])
    else:
        tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def char_bpe(pre_tokenizer, normalizer=None):
    """Characters with an unknown token, no byte fallback."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizer or normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, show_progress=False))
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def word_piece(lowercase, cleanup):
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=cleanup)
    # The trainer breaks ties as its hash maps happen to lie, so the vocabulary is written down: characters and parts of words.
    signs = sorted({c for line in corpus() for c in tokenizer.normalizer.normalize_str(line) if not c.isspace()} | set(".,!?'#<>|-:;/"))
    words = sorted({w for word in WORDS for w in tokenizer.normalizer.normalize_str(word).split()})
    rows = SPECIAL + signs + ["##" + c for c in signs] + words[::2] + ["##" + w[-3:] for w in words[1::2]] + ["##" + w[1:] for w in words]
    tokenizer.model = models.WordPiece({row: i for i, row in enumerate(dict.fromkeys(rows))}, unk_token="<unk>")
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.BertProcessing(("</s>", 2), ("<s>", 1))
    return tokenizer


def kinds():
    llama2 = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return {
        "gpt2": byte_level([], use_regex=True, template=False),
        "gpt2_prefix_space": byte_level([], use_regex=True, prefix=True, template=False),
        "llama3": byte_level([LLAMA3], ignore_merges=True),
        "qwen2": byte_level([QWEN2], normalizer=normalizers.NFC(), template=False),
        "gpt4o": byte_level([GPT4O]),
        "tekken": byte_level([TEKKEN], ignore_merges=True),
        "deepseek_v3": byte_level([r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK]),
        "starcoder": byte_level([], use_regex=True, first=[pre_tokenizers.Digits(individual_digits=True)]),
        "other_pattern": byte_level([r"(?:\w|\d)+(?=\s|$)|[^\S\r\n]+|\p{Han}{1,2}|\S"]),
        "llama2": sentencepiece_bpe(llama2, None, True),
        "gemma": sentencepiece_bpe(normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"), False),
        "metaspace_first": sentencepiece_bpe(normalizers.NFC(), pre_tokenizers.Metaspace("▁", "first", False), True),
        "unigram": unigram(False, "always"),
        "unigram_bytes": unigram(True, "first"),
        "wordpiece": word_piece(True, True),
        "wordpiece_cased": word_piece(False, False),
        "char_punctuation": char_bpe(pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous"),
                                                              pre_tokenizers.Digits(individual_digits=False)])),
        "char_whitespace": char_bpe(pre_tokenizers.Whitespace(), normalizers.NFKD()),
        "char_next": char_bpe(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"[aeiou]"), "merged_with_next"),
                                                       pre_tokenizers.Split("t", "removed", invert=False),
                                                       pre_tokenizers.Split(Regex(r"[a-m]+"), "merged_with_previous", invert=True)])),
    }


def main():
    directory = Path(sys.argv[1])
    all_texts = texts()
    (directory / "texts.json").write_text(json.dumps(all_texts) + "\n", encoding="utf-8")
    for name, tokenizer in kinds().items():
        tokenizer.add_special_tokens([AddedToken("<strip>", lstrip=True, rstrip=True, special=True)])
        tokenizer.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("<word>", single_word=True, normalized=False),
                              AddedToken("<norm>", normalized=True)])
        out = directory / name
        out.mkdir(parents=True, exist_ok=True)
        (out / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
        cases = []
        for text in all_texts:
            ids = tokenizer.encode(text).ids
            tokenizer.encode_special_tokens = True
            plain = tokenizer.encode(text, add_special_tokens=False).ids
            tokenizer.encode_special_tokens = False
            cases.append([ids, plain, tokenizer.decode(ids)])
        (out / "cases.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
