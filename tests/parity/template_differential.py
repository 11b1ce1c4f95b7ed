#!/usr/bin/python3
"""Random templates, rendered by this project and by python3-jinja2; prints every difference.

    template_differential.py RENDER_TEMPLATE [--count N] [--seed S]

RENDER_TEMPLATE is build/<preset>/test/render_template. Exit status 1 when anything differs.
"""
import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "golden/templates"))
import jinja_reference  # noqa: E402
import make_snippets  # noqa: E402

NAMES = ["a", "b", "c", "s", "n", "f", "l", "ls", "d", "users", "nil", "u", "nested", "missing", "e"]
STRINGS = ["'x'", "''", "'a b'", "'<|x|>'", "\"it's\"", "'é🙂'", "'\\n'", "'Ab-cD'", "'1'", "'2.5'"]
NUMBERS = ["0", "1", "2", "-1", "3.5", "10", "0.1"]
# What depends on memory addresses, or is documented to differ, is left out.
FILTERS = [f for f in make_snippets.FILTERS if f not in ("nosuch", "string|length")] + [
    "map('length')|list", "map('string')|join(',')", "selectattr('age')|list", "map(attribute='name')|list", "groupby('age')|list",
    "sort(attribute='age')", "default(1)|string", "first|string", "dictsort(by='value')", "unique|join", "rejectattr('x')|list"]
METHODS = [m for m in make_snippets.STRING_METHODS if m not in ("upper", "nosuch()")] + [
    "get('a')", "get('zz', 'D')", "items()|list", "keys()|list", "values()|list", "append(1)", "pop()", "copy()", "index(1)", "count(1)", "pop('a', 0)"]
TEXTS = ["", " ", "\n", "  \n  ", "a", "x \n", "\n\n", "{", "}", "<|im_start|>", "é", "\t"]


class Generator:
    def __init__(self, rng):
        self.rng = rng
        self.macros = []

    def pick(self, options):
        return self.rng.choice(options)

    def atom(self):
        return self.pick([lambda: self.pick(NAMES), lambda: self.pick(STRINGS), lambda: self.pick(NUMBERS),
                          lambda: self.pick(["true", "false", "none", "loop.index", "loop.last", "[]", "{}", "loop.length", "loop.first"])])()

    def expression(self, depth):
        if depth <= 0:
            return self.atom()
        sub = lambda: self.expression(depth - 1 - self.rng.randrange(2))  # noqa: E731
        kinds = [
            self.atom, self.atom,
            lambda: f"{sub()} {self.pick(make_snippets.OPERATORS)} {sub()}",
            lambda: f"({sub()})",
            lambda: f"({sub()})|{self.pick(FILTERS)}",
            lambda: f"({sub()}) is {self.pick(['not ', ''])}{self.pick(make_snippets.TESTS[:-1])}",
            lambda: f"({sub()}).{self.pick(METHODS)}",
            lambda: f"({sub()})[{self.pick([sub, lambda: self.pick(['0', '-1', '1:', ':2', '::-1', '1:3', chr(39) + 'a' + chr(39)])])()}]",
            lambda: f"({sub()}).{self.pick(['a', 'b', 'name', 'items', 'x', '0', 'zz'])}",
            lambda: f"[{sub()}, {sub()}]", lambda: f"({sub()}, {sub()})", lambda: f"{{{self.pick(STRINGS)}: {sub()}, {self.pick(STRINGS)}: {sub()}}}",
            lambda: f"{sub()} if {sub()} else {sub()}", lambda: f"{sub()} if {sub()}", lambda: f"not {sub()}", lambda: f"-{sub()}",
            lambda: f"range({self.pick(NUMBERS)}, {self.pick(['5', '3', 'n'])})|list", lambda: f"namespace(a={sub()}).a",
            lambda: f"{self.pick(self.macros or ['m0'])}({self.pick(['', sub(), sub() + ', ' + sub(), 'a=' + sub(), 'b=' + sub()])})",
        ]
        return self.pick(kinds)()

    def tag(self, text):
        return "{%" + self.pick(["", "", "-", "+"]) + " " + text + " " + self.pick(["", "", "-", "+"]) + "%}"

    def out(self, depth):
        return "{{" + self.pick(["", "", "-"]) + " " + self.expression(depth) + " " + self.pick(["", "", "-"]) + "}}"

    def block(self, depth, in_loop=False):
        return "".join(self.statement(depth, in_loop) for _ in range(self.rng.randrange(1, 4)))

    def statement(self, depth, in_loop):
        body = lambda loop=in_loop: self.block(depth - 1, loop)  # noqa: E731
        simple = [lambda: self.pick(TEXTS), lambda: self.pick(TEXTS), lambda: self.out(2), lambda: self.out(3),
                  lambda: self.tag(f"set {self.pick(NAMES)} = {self.expression(2)}"), lambda: "{#" + self.pick(["", "-"]) + " c " + self.pick(["", "-"]) + "#}",
                  lambda: self.tag(f"set ns.{self.pick('xy')} = {self.expression(2)}"), lambda: self.tag(f"set ns = namespace(x={self.expression(1)})")]
        if in_loop:
            simple.append(lambda: self.tag(f"if {self.expression(1)}") + self.tag(self.pick(["break", "continue"])) + self.tag("endif"))
        if depth <= 0:
            return self.pick(simple)()
        name = lambda: self.pick(NAMES)  # noqa: E731
        return self.pick(simple + [
            lambda: self.tag(f"if {self.expression(2)}") + body() + self.tag("endif"),
            lambda: self.tag(f"if {self.expression(2)}") + body() + self.tag(f"elif {self.expression(2)}") + body() + self.tag("else") + body() + self.tag("endif"),
            lambda: self.tag(f"for {name()} in {self.pick(['l', 'ls', 'users', 'd', 'nested', 'range(3)', self.expression(2)])}") + body(True) + self.tag("endfor"),
            lambda: self.tag(f"for {name()} in {self.pick(['l', 'ls', 'users'])} if {self.expression(2)}") + body(True) + self.tag("else") + body() + self.tag("endfor"),
            lambda: self.tag(f"for {name()}, {name()} in {self.pick(['d.items()', 'd|dictsort', 'nested'])}") + body(True) + self.tag("endfor"),
            lambda: self.macro(depth), lambda: self.macro(depth),
            lambda: self.tag(f"set {name()}") + body() + self.tag("endset"), lambda: self.tag(f"filter {self.pick(['upper', 'trim', 'indent', 'replace(1, 2)'])}") + body() + self.tag("endfilter"),
            lambda: self.tag(f"with {name()} = {self.expression(2)}") + body() + self.tag("endwith"),
            lambda: self.tag("generation") + body(False) + self.tag("endgeneration"),
            lambda: self.tag(f"call {self.pick(self.macros or ['m0'])}({self.expression(1)})") + body(False) + self.tag("endcall"),
        ])()

    def macro(self, depth):
        name = f"m{self.rng.randrange(3)}"
        text = self.tag(f"macro {name}({self.pick(['a', 'a, b', 'a, b=1', 'a=l, b=a', ''])})") + self.block(depth - 1) + \
            self.pick(["", "{{ caller() }}", "{{ varargs }}"]) + self.tag("endmacro")
        self.macros.append(name)
        return text


def differs(ours, theirs):
    """What is refused may be refused for any reason."""
    if "error" in theirs or "error" in ours:
        return ("error" in theirs) != ("error" in ours)
    return ours["text"] != theirs["text"]


# Where the two are known to part: an address as text, integers past 128 bits, complex numbers, and what Python's
# compiler refuses or folds.
def explained(ours, theirs):
    text = theirs.get("text", "")
    lowered = text.lower()
    if " at 0x" in lowered or "0x7f" in lowered or "object" in lowered or "method" in lowered or any(len(word) > 35 and word.lstrip("-").isdigit() for word in text.split()):
        return True
    reason = ours.get("error", "")
    return any(word in reason for word in ("not supported", "too large", "nested deeper", "root of a negative", "has no text", "longer than", "more than", "has no slices")) or \
        "RecursionError" in theirs.get("error", "") or "MemoryError" in theirs.get("error", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("render_template")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    print(f"seed {options.seed}")
    process = subprocess.Popen([options.render_template], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    different = refused = 0
    for _ in range(options.count):
        template = Generator(rng).block(rng.choice([0, 0, 0, 1, 1, 2, 3]))
        context = dict(json.loads(json.dumps(make_snippets.CONTEXT)), a=1, b="B", c=[1, "x"])
        process.stdin.write(json.dumps({"template": template, "context": context}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            print("crashed:", repr(template))
            return 1
        ours = json.loads(line)
        theirs = jinja_reference.render(template, context)
        refused += "error" in theirs
        if differs(ours, theirs) and not explained(ours, theirs):
            different += 1
            if different <= 20:
                print(json.dumps({"template": template, "ours": ours.get("text", ours.get("error")), "jinja2": theirs.get("text", theirs.get("error"))}, ensure_ascii=False))
    print(f"{options.count} templates, {refused} refused by Jinja2, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
