#!/usr/bin/env python3
"""Writes category_ranges.inc: the general categories as the regular expressions of PyPI tokenizers see them.

Usage: make_category_ranges.py > category_ranges.inc   (made with tokenizers 0.23.3: Unicode 16)
"""
from tokenizers import Regex, pre_tokenizers

CATEGORIES = {"Lu": "kLu", "Ll": "kLl", "Lt": "kLt", "Lm": "kLm", "Lo": "kLo", "M": "kMark", "N": "kNumber",
              "P": "kPunctuation", "S": "kSymbol"}
CHUNK = 4096


def members(category):
    remove = pre_tokenizers.Split(Regex(r"\p{%s}" % category), "removed")
    found = set()
    scalars = [c for c in range(0x80, 0x110000) if not 0xD800 <= c <= 0xDFFF]
    for first in range(0, len(scalars), CHUNK):
        chunk = scalars[first:first + CHUNK]
        kept = {i for _, (begin, end) in remove.pre_tokenize_str("".join(map(chr, chunk))) for i in range(begin, end)}
        found.update(c for i, c in enumerate(chunk) if i not in kept)
    return found


def main():
    name_of = {c: name for category, name in CATEGORIES.items() for c in members(category)}
    rows, last = [], "kOther"
    for c in range(0x80, 0x110001):
        name = name_of.get(c, "kOther")
        if name != last:
            rows.append(f"{{0x{c:X}, {name}}},")
        last = name
    lines, line = [], ""
    for row in rows:
        if len(line) + len(row) + 1 > 120:
            lines.append(line)
            line = ""
        line += (" " if line else "") + row
    print("// Made by make_category_ranges.py: where a category begins; it lasts to the next row.")
    print("\n".join(lines + [line]))


main()
