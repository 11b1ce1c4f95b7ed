#!/usr/bin/python3
"""make_template_corpus.py DIR: one file per construct of templates, as template_fuzz reads them. The build runs it."""
import json
import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "golden/templates"))
sys.modules["jinja_reference"] = type(sys)("jinja_reference")  # only the list of templates is wanted
import make_snippets  # noqa: E402


def main():
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.iterdir():
        old.unlink()
    context = json.dumps({key: make_snippets.CONTEXT[key] for key in ("s", "u", "n", "f", "l", "d", "users", "messages")},
                         ensure_ascii=False, separators=(",", ":")).encode()
    head = struct.pack("<H", len(context)) + context
    values = ["s", "l", "d", "users", "n"]
    templates = [t for t in make_snippets.STATEMENTS]
    templates += ["".join(f"{{{{ {v}|{f} }}}}" for v in values[:1]) for f in make_snippets.FILTERS]
    templates += [f"{{{{ s.{m} }}}}" for m in make_snippets.STRING_METHODS]
    for number, text in enumerate(templates):
        (directory / f"{number:03}").write_bytes(head + text.encode())


if __name__ == "__main__":
    main()
