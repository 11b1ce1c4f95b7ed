#!/usr/bin/python3
"""Writes special_casing.inc: characters whose upper or title case is more than one character, as Python's str maps them."""
import sys
def cps(s): return ", ".join("0x%X" % ord(c) for c in s)
print("// Made by tests/golden/templates/make_special_casing.py: {character, title case, upper case}, those longer than one character.")
for c in range(0x110000):
    if 0xD800 <= c < 0xE000: continue
    s = chr(c)
    if len(s.upper()) > 1 or len(s.title()) > 1:
        print("{0x%X, {%s}, {%s}}," % (c, cps(s.title()), cps(s.upper())))
