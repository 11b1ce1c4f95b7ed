#!/usr/bin/python3
"""Writes snippets.json: small templates for every construct, filter, method and test, with what Jinja2 renders.

    make_snippets.py            writes the file anew (needs Debian's python3-jinja2)
    make_snippets.py --check    renders again and compares; exit status 1 when anything differs

A case with "error": true must be refused, whatever the wording.
"""
import itertools
import json
import sys
from pathlib import Path

import jinja_reference

FILE = Path(__file__).parent / "snippets.json"

CONTEXT = {
    "s": "Hello World", "e": "", "u": "Ça va? ß ΑΣ 你好 🙂\t\n'\"\\ \u00a0\u200b", "sp": "  a b  c \n", "n": 5, "neg": -7, "z": 0,
    "f": 2.5, "big": 18446744073709551615, "t": True, "no": False, "nil": None, "l": [3, 1, 2], "ls": ["b", "A", "c", "a"],
    "el": [], "d": {"b": 1, "a": [1, None, True, 2.0], "items": "x", "k é": "v\"'"}, "ed": {},
    "users": [{"name": "Bob", "age": 30, "x": {"y": [1]}}, {"name": "alice", "age": 25}, {"name": "Carl", "age": 30, "x": None}],
    "nested": [[1, 2], [3, [4, 5]], []], "lines": "a\nb\r\nc\n\nd", "html": "<a href='x'>&\"</a>",
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": " U "},
                 {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}],
}

VALUES = ["s", "e", "u", "sp", "n", "neg", "z", "f", "big", "t", "no", "nil", "l", "ls", "el", "d", "ed", "users", "nested",
          "missing", "(1, 'a')", "(1,)", "()", "range(3)", "d.items()", "d.keys()", "d.values()", "l|map('string')", "1e20",
          "1e16", "123456789.0", "0.1", "1e-5", "-0.0", "1/3", "namespace(a=1)", "{1: 2, none: 3, true: 4}", "'\\x07\\u00e9'"]
FILTERS = ["abs", "capitalize", "center(7)", "count", "default('D')", "default('D', true)", "d", "dictsort", "e", "escape", "first",
           "float", "float(1.5)", "indent", "indent(2, true)", "indent('>', blank=true)", "int", "int(9)", "int(base=16)", "items|list", "join", "join(', ')",
           "last", "length", "list", "lower", "map('upper')|list", "max", "min", "reject|list", "replace('l', 'L')", "replace('', '-')",
           "reverse|list", "reverse|join", "round", "round(1)", "round(-1)", "round(1, 'floor')", "round(method='ceil')", "safe", "select|list",
           "select('string')|list", "sort", "sort(reverse=true)", "sort(case_sensitive=true)", "string", "sum", "title", "tojson", "tojson(indent=2)",
           "tojson(separators=(',', ':'))", "tojson(ensure_ascii=true)", "tojson(sort_keys=true)", "trim", "trim('Ha ')", "truncate(6)", "truncate(8, true, '~', 0)",
           "unique|list", "upper", "wordcount", "batch(2)|list", "batch(2, 'x')|list", "slice(2)|list", "slice(2, 'x')|list", "format", "nosuch", "string|length", "attr('a')"]
TESTS = ["boolean", "callable", "defined", "divisibleby(3)", "divisibleby 5", "eq(5)", "even", "false", "float", "ge(1)", "gt 1", "in([5])", "integer",
         "iterable", "le 5", "lower", "lt 9", "mapping", "ne 5", "none", "number", "odd", "sequence", "string", "true", "undefined", "upper",
         "equalto('Hello World')", "sameas(none)", "sameas true", "filter", "test", "nosuch"]
STRING_METHODS = ["capitalize()", "center(15)", "center(15, '*')", "count('l')", "endswith('d')", "endswith(('x', 'd'))", "find('o')", "find('zz')", "find('o', 5)", "index('o')",
                  "index('zz')", "isalnum()", "isalpha()", "isdigit()", "islower()", "isspace()", "isupper()", "join(['a', 'b'])", "join([1])", "ljust(14)", "lower()",
                  "lstrip()", "lstrip('He')", "partition(' ')", "partition('zz')", "removeprefix('He')", "removesuffix('ld')", "replace('l', 'L')", "replace('l', 'L', 1)", "rfind('o')",
                  "rjust(14, '.')", "rpartition(' ')", "rsplit()", "rsplit(' ', 1)", "rsplit(none, 1)", "rstrip()", "split()", "split(' ')", "split('l', 1)", "split(none, 1)", "split('')",
                  "splitlines()", "splitlines(true)", "startswith('He')", "startswith('e', 1)", "strip()", "strip('Hd')", "title()", "upper()", "zfill(14)", "nosuch()", "upper"]
PAIRS = ["1", "0", "-3", "2.5", "'a'", "'3'", "true", "none", "[1]", "[1, 2]", "(1,)", "{'a': 1}", "missing", "s"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


def expressions():
    for value in VALUES:
        yield value
        yield f"[{value}]"
        yield f"1 if {value} else 0"
        yield f"not {value}"
    for value, name in itertools.product(VALUES, FILTERS):
        yield f"({value})|{name}"
    for value, name in itertools.product(VALUES, TESTS):
        yield f"({value}) is {name}"
    for value, method in itertools.product(["s", "e", "u", "sp", "lines"], STRING_METHODS):
        yield f"{value}.{method}"
    for left, operator, right in itertools.product(PAIRS, OPERATORS, PAIRS):
        yield f"{left} {operator} {right}"
    for value in ["s", "u", "l", "(1, 2, 3)", "range(5)", "el", "missing", "d", "n"]:
        for index in ["0", "-1", "7", "'a'", "1:", ":2", "::-1", "1:3", "-2:", "::2", "5:1:-2", ":-1", "none:2", "0:0", "::0", "'a':", "true"]:
            yield f"{value}[{index}]"
    yield from [
        "d.b", "d['b']", "d.items", "d['items']", "d.items()|list", "ed['items'] is defined", "ed.items()", "d.get('zz')", "d.get('zz', 1)", "d.zz", "d.zz.y", "d['zz']['y']",
        "missing.x", "missing['x']", "missing()", "missing|default('x')", "missing.x|default('x')", "users[0].name", "users.0.name", "users[0]['x'].y[0]", "users|map(attribute='name')|join(',')",
        "users|map(attribute='x.y', default='-')|list", "users|selectattr('x')|map(attribute='name')|list", "users|selectattr('age', 'gt', 26)|list|length",
        "users|selectattr('age', 'equalto', 30)|map(attribute='name')|list", "users|rejectattr('x', 'defined')|map(attribute='name')|list", "users|rejectattr('x')|list|length",
        "users|sort(attribute='age')|map(attribute='name')|join", "users|sort(attribute='age,name')|map(attribute='name')|join", "users|sort(attribute='name', reverse=true)|map(attribute='name')|join",
        "users|groupby('age')|map('first')|list", "users|groupby('age')|map(attribute='list')|map('length')|list", "users|groupby('x', default='q')|length", "users|sum(attribute='age')", "users|sum('age', 10)",
        "users|max(attribute='age')|attr('name')", "(users|max(attribute='age')).name", "(users|min(attribute='name')).name", "users|unique(attribute='age')|map(attribute='name')|list", "users|join('/', attribute='name')",
        "[1, 2, 3]|map('multiply', 2)|list", "ls|map('replace', 'a', 'x')|list", "ls|sort|join", "ls|unique|join", "d|dictsort", "{'b': 1, 'A': 2}|dictsort", "{'b': 1, 'A': 2}|dictsort(true)", "{'b': 1, 'A': 2}|dictsort(by='value')",
        "d|tojson", "d|tojson(indent=4)", "[]|tojson(indent=2)", "{}|tojson(indent=2)", "[[], {}]|tojson(indent=1)", "d|tojson(indent='\\t')", "u|tojson", "1e100|tojson", "nil|tojson", "[1, (2, 3)]|tojson", "missing|tojson", "range(2)|tojson",
        "{1: 2, none: 3, true: 4, 1.5: 0}|tojson", "{(1, 2): 3}|tojson", "messages|tojson", "messages[2].tool_calls[0].function.arguments|tojson", "d|string", "messages|string",
        "'%s-%d' % ('a', 3)", "'%5.2f|%-5s|%05d|%x' % (1.5, 'ab', 42, 255)", "'%s' % 'x'", "'%s' % [1, 2]", "'%(a)s' % {'a': 1}", "'%d' % 'x'", "'%s %s' % ('a',)", "'100%%' % ()", "'%r' % 'q'", "'%s'|format(u)", "'%s %s'|format('a', 1)", "'%(x)s'|format(x=1)",
        "'%e %g %G' % (12345.678, 0.00001, 1e20)", "'%+d % d %o %X %c' % (5, 5, 8, 255, 'z')", "'%.3s|%10.1f' % ('abcdef', 2.25)", "'%i' % 3.9", "'%*d' % (5, 42)",
        "1 < 2 < 3", "1 < 3 < 2", "1 == 1 == true", "1 in [1] == true", "'a' < 'b' < 'c'", "not not 1", "not 1 == 2", "-2 ** 2", "2 ** -1", "2 ** 3 ** 2", "7 // 2", "-7 // 2", "7 % -3", "-7 % 3", "7.5 // 2", "-7.5 % 2",
        "1_000", "0x1F", "0b101", "0o17", "1.5e3", "1e5", "2E-2", "1.", ".5", "00", "01", "'a' 'b'", "'a' ~ 1 ~ none ~ missing ~ [1]", "1 ~ 2 + 3", "-1|abs", "-s|length", "+5", "+true", "-true", "--5",
        "'\\n\\t\\\\\\'\\x41\\u0042\\U0001F642\\101\\q'", "\"it's\"", "'say \"hi\"'", "[\"it's\", 'say \"hi\"', 'both \\'\"', '\\n\\\\']", "['\\u200b', '\\x7f', '\\xa0', '\\ue000', '🙂']",
        "[1, 2,]", "{'a': 1,}", "(1, 2,)", "{'a': 1, 'a': 2}", "{[1]: 2}", "[[1, 2] == [1, 2.0], (1,) == [1], {'a': 1} == {'a': true}]", "[1, 2] < [1, 3]", "(1, 2) < (1,)", "[1] < ['a']", "[] < [none]",
        "a if false", "(a if false) is defined", "'x' if true else nosuch()", "1 if 0 else 2 if 0 else 3", "(1 if 1) + 1", "[1 if n > 3 else 2, 3]",
        "s is string and n is number", "n is not none", "not n is none", "s is string is true", "n is divisibleby 5 and true", "n is in [5]", "missing is not defined", "nil is none and z is not none", "s.x is defined", "n is sameas n",
        "range(5)|list", "range(1, 10, 3)|list", "range(5, 0, -2)|list", "range(0)|list", "range(3)[1]", "range(3)|length", "range(5)|sum", "2 in range(3)", "range(1.5)", "range(0, 1, 0)", "range(3)", "range(1, 7, 2)", "range(10)[2:8:3]", "range(10)[::-1]|list",
        "dict(a=1, b=2)", "dict({'x': 1}, y=2)", "dict([('a', 1)])", "dict([1])", "dict()", "namespace(a=1, b='x')", "namespace({'q': 1})", "namespace(a=1).a", "namespace().zz", "namespace(a=1)['a']", "cycler('a', 'b').next()", "joiner()()", "cycler()",
        "l.append(4)", "l.append", "[1, 2].pop()", "[1, 2].pop(0)", "[].pop()", "[1, 2, 1].count(1)", "[1, 2].index(2)", "[1].index(5)", "(1, 2).index(2)", "d.pop('b')", "d.pop('zz')", "d.pop('zz', 9)", "d.keys()|list", "d.values()|list", "d.update({'q': 1})", "d.setdefault('q', 5)", "d.copy() == d",
        "'a,b,c'.split(',')[-1]", "s.upper().lower().title()", "s[0].upper() ~ s[1:]", "'abc'|first ~ 'abc'|last", "el|first", "el|last", "el|max", "el|sum", "el|join", "nil|list", "n|list", "n|length", "nil|length", "nil|join", "s|map('upper')|join", "none|map('upper')|list", "5|map('upper')|list",
        "(l|map('string'))|first", "l|map('string')|last", "l|map('string')|length", "(l|select('odd')) is iterable", "(l|select('odd')) is sequence", "[l|select('odd')] is sequence", "l|select('nosuch')|list", "l|map('nosuch')|list", "l|map|list", "l|selectattr|list",
        "'%s' % l", "lines|indent", "lines|indent(first=true)", "lines.splitlines()", "lines|wordcount", "u|wordcount", "u|upper", "u|lower", "u|title", "u|capitalize", "'ΑΣ ΑΣ. Σ'|lower", "'ΌΣΟΣ'.lower()", "'İ'|lower", "'ŉ ﬁ ǆ ß'|upper", "'ǆ ﬁ'|title", "'ǆ x'.title()", "\"they're bill's\".title()", "\"they're bill's\"|title", "'a-b (c) [d]'|title",
        "'1_000'|int", "' 42 '|int", "'0x1f'|int(base=16)", "'1e3'|int", "'abc'|int(-1)", "'12.9'|int", "3.99|int", "-3.99|int", "true|int", "nil|int", "'inf'|float", "'nan'|float", "'inf'|int", "'1.5'|float", "'x'|float", "' 1e3 '|float", "5|float", "'1_0.5'|float",
        "2.675|round(2)", "2.5|round", "3.5|round", "-2.5|round", "1234.5|round(-2)", "1250|round(-2)", "1350|round(-2)", "5|round(2)", "1.1|round(1, 'ceil')", "2.5|round|int", "'x'|round", "0.1 + 0.2", "1e308 * 10", "1 / 0", "1 % 0", "1 // 0", "0.0 / 0", "3.0", "1e15", "1e16", "123456789012345680.0", "1.5e-7", "0.0001", "0.00001", "100.0 ** 10", "10 ** 20", "-5 // 2.0",
        "raise_exception('no')", "strftime_now('%Y-%m-%d')", "strftime_now('%d %b %Y %H:%M:%S %A %B %j %p %I %y %%')", "strftime_now('%-d')", "strftime_now()", "nosuch()", "none()", "s()", "n.x", "n.x.y", "nil.x", "nil['x']", "t.x is defined",
        "loop", "loop is defined", "caller is defined", "varargs is defined", "html|e", "html|escape|length", "html|safe", "missing|upper", "missing|list", "missing|length", "missing + 1", "1 + missing", "missing == missing2", "missing < 1", "missing in [1]", "1 in missing", "missing ~ 'x'", "missing|join", "-missing", "missing|int", "missing|float", "missing|string", "missing|trim", "missing|first", "[missing]",
        "{'a': missing}", "[missing]|tojson", "(missing, 1)", "none|string", "none ~ ''", "none + 'a'", "none|trim", "nil|upper", "true|upper", "1|upper", "1.0|string", "[1]|string|length", "true + true", "true|string", "'a' * 3", "3 * 'ab'", "[1] * 2", "'a' * -1", "(1,) + (2,)", "[1] + [2]", "[1] + (2,)", "'a' + 1", "{} + {}",
        "{'a': {'b': [1, {'c': none}]}}", "{'a': 1}.a", "{'a': 1}['a']", "{'a': 1}.items()|list", "[1, 2, 3].0", "[1, 2, 3][-1]", "'abc'.1", "(1, 2)[0]", "[3, 1, 2]|sort|first", "[[2, 1], [1, 2]]|sort", "[1, 'a']|sort", "[none, 1]|sort", "['a', 'B']|min", "['a', 'B']|max", "['a', 'B']|max(case_sensitive=true)", "[1, 1.0, true, '1']|unique|list", "[[1], [1]]|unique|list",
        "lipsum is callable", "range is callable", "s.upper is callable", "users|tojson(indent=2)", "nested|tojson(indent=2)", "nested|string", "nested|sum(start=[])", "d == d", "d != ed", "nested[1][1][0]", "nested[0] + nested[1]", "s|list|length", "s|batch(4)|map('join')|list", "s|reverse", "l|reverse|list", "d|list", "d|first", "d|last", "d|length", "d|join(',')", "l is sequence", "d is mapping", "d.items() is sequence", "d.items() is iterable", "d.items()|first", "d.items()|length", "d.items()|list|first|last",
    ]


STATEMENTS = [
    "{% if s %}a{% endif %}", "{% if e %}a{% elif n %}b{% else %}c{% endif %}", "{% if e %}a{% elif z %}b{% else %}c{% endif %}", "{% if missing %}x{% endif %}", "{% if missing.x %}x{% endif %}", "{% if 1 if 0 else 1 %}x{% endif %}",
    "{% for x in l %}{{ x }}{% endfor %}", "{% for x in l %}{{ loop.index }}/{{ loop.length }}:{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}", "{% for x in el %}a{% else %}empty{% endfor %}", "{% for x in missing %}a{% else %}empty{% endfor %}", "{% for x in nil %}a{% endfor %}", "{% for x in n %}a{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }};{% endfor %}", "{% for k, v in d|dictsort %}{{ k }}{{ loop.index0 }};{% endfor %}", "{% for a, b in [[1, 2], (3, 4), 'xy'] %}{{ a }}-{{ b }};{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for (a, b), c in [[[1, 2], 3]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for x in l if x > 1 %}{{ x }}{{ loop.index }}{{ loop.last }}{% else %}none{% endfor %}", "{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}", "{% for x in l if x is odd %}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{% endfor %}", "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}", "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in l %}{{ loop.first }}{{ loop.last }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}", "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}", "{% for x in l %}{{ loop }}{% endfor %}", "{% for x in l %}{{ loop.nosuch is defined }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% break %}{% else %}E{% endfor %}", "{% for x in l %}{% continue %}{% else %}E{% endfor %}", "{% for x in l %}{% if x == 2 %}{% break %}{% endif %}{% else %}E{% endfor %}", "{% break %}", "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }};{% endfor %}{% endfor %}", "{% for x in l %}{% for y in ls %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{% for x in l %}{% set o = loop %}{% for y in ls %}{{ o.index }}{{ loop.index }};{% endfor %}{% endfor %}",
    "{% for x in [1, [2, [3]], 4] recursive %}{% if x is iterable %}[{{ loop(x) }}]{% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}", "{% for x in l recursive %}{{ x }}{% else %}none{% endfor %}", "{% for x in l %}{{ loop(l) }}{% endfor %}", "{% for x in s %}{{ x }}.{% endfor %}", "{% for x in u %}{{ x }}|{% endfor %}", "{% for x in range(3) %}{{ x }}{% endfor %}", "{% for x in l|map('string') %}{{ x }}{{ loop.length }}{% endfor %}", "{% for x in l|reverse %}{{ x }}{{ loop.length }}{% endfor %}",
    "{% set x = 1 %}{{ x }}", "{% set x, y = 1, 2 %}{{ x }}{{ y }}", "{% set x = 1, 2 %}{{ x }}", "{% set x, y = l %}", "{% set x %}a{{ n }}b{% endset %}{{ x }}|{{ x|length }}", "{% set x|upper %}a{{ s }}b{% endset %}{{ x }}", "{% set x | replace('a', 'b') | upper %}a{% endset %}{{ x }}", "{% set x = 1 %}{% set x = x + 1 %}{{ x }}", "{% set l = 5 %}{{ l }}", "{% set d.x = 5 %}", "{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{% set ns.b = 3 %}{{ ns.a }}{{ ns.b }}{{ ns }}", "{% set ns.a = 1 %}", "{% set none = 1 %}", "{% set 5 = 1 %}",
    "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }};{% endfor %}{{ x }}", "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "{% if false %}{% set x = 2 %}{% endif %}{{ x }}", "{% if false %}{% set n = 2 %}{% endif %}{{ n }}", "{% for i in l %}{{ y }}{% endfor %}{% set y = 1 %}{{ y }}", "{% for i in l %}{{ n }}{% endfor %}{% set n = 1 %}{{ n }}", "{{ n }}{% set n = 1 %}{{ n }}", "{% for n in l %}{{ n }}{% endfor %}{{ n }}", "{% for x in l %}{% set q = x %}{% endfor %}{{ q }}",
    "{% set ns = namespace(t=0) %}{% for i in l %}{% set ns.t = ns.t + i %}{% endfor %}{{ ns.t }}", "{% for i in l %}{% if i == 1 %}{% set n = 9 %}{% endif %}{{ n }}{% endfor %}{{ n }}", "{% for i in l %}{% if i == 1 %}{% set q = 9 %}{% endif %}{{ q }}{% endfor %}", "{% set loop = 1 %}{{ loop }}", "{% for x in l %}{% set loop = 1 %}{% endfor %}", "{% for loop in l %}{% endfor %}",
    "{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(b=4, a=5) }}|{{ m() }}", "{% macro m() %}x{% endmacro %}{{ m }}{{ m.name }}{{ m.arguments }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=1) }}", "{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(7) }}", "{% macro m(a, b=c, c=3) %}{{ b }}{% endmacro %}{{ m(7) }}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}{{ n }}{{ a }}{% set n = 3 %}{{ n }}{% endmacro %}{{ m(1) }}{{ n }}", "{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(3) }}", "{{ m(1) }}{% macro m(a) %}{{ a }}{% endmacro %}", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{% endfor %}{{ m is defined }}", "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "{% macro a() %}{% macro b() %}B{{ x }}{% endmacro %}{% set x = 4 %}{{ b() }}{% endmacro %}{{ a() }}",
    "{% macro m(x) %}{{ x|upper }}{% endmacro %}{{ m('a') + 'b' }}{{ m('q')|length }}", "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}body{% endcall %}", "{% macro m() %}[{{ caller(1, b=2) }}]{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{{ n }}{% endcall %}", "{% macro m() %}x{% endmacro %}{% call m() %}body{% endcall %}", "{% macro m() %}{{ caller is defined }}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m(caller=none) %}{{ caller }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}{% set c = 3 %}{% call m() %}{{ c }}{% endcall %}", "{% call s.upper() %}{% endcall %}", "{% call n %}{% endcall %}",
    "{% macro m() %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) m() %}{% if i == 1 %}one{% else %}{{ i }}{% endif %}{% endcall %}", "{% macro o() %}{% call i() %}{{ caller() }}{% endcall %}{% endmacro %}{% macro i() %}<{{ caller() }}>{% endmacro %}{% call o() %}x{% endcall %}",
    "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}aa{% endfilter %}", "{% filter indent(2) %}a\nb{% endfilter %}", "{% with a=1, b=n %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}", "{% with a=1 %}{% with a=2, b=a %}{{ a }}{{ b }}{% endwith %}{% endwith %}", "{% with n=n+1 %}{{ n }}{% endwith %}{{ n }}",
    "{% generation %}a{{ n }}{% endgeneration %}", "{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}", "{% for x in l %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}", "{% print n, s %}", "{% raw %}{{ x }}{% if %}{% endraw %}", "{%- raw -%}  {{ x }}  {%- endraw -%}  y", "  {% raw %}\n a {% endraw %}\nb", "{% raw %}a", "{# c #}a{# {{ #}", "{# c", "{{ n", "{% if", "{% if n %}", "{% endif %}", "{% nosuch %}", "{{ }}", "{{ n n }}", "{% for x l %}{% endfor %}", "{{ (1 }}", "{{ 1) }}", "{{ [1} }}", "{{ 'a }}", "{{ @ }}", "{% else %}", "{% if n %}{% else %}{% elif s %}{% endif %}", "{% for x in l %}{% endif %}",
    "a\n", "a\n\n", "\na", "a\r\nb\rc\n", "", "\n", "{{ n }}\n", "{% if n %}\na\n{% endif %}\n", "  {% if n %}\n  a\n  {% endif %}\nb", "x {% if n %} y {% endif %} z", "x\n  {{ n }}\n  y", "x\n  {{- n }}\n  y", "x\n  {{ n -}}\n  y", "x \n  {%- if n -%}\n y \n{%- endif -%}\n z", "x\n  {%+ if n %}\n y{% endif %}", "{% if n +%}\n y{% endif %}", "a {#- c -#} b", "a\n  {# c #}\nb", "a\n  {# c #} b\nc", "a  {#- c #}\n b", "\t{% if n %}\t{% endif %}\t", "a{% if n %}  \n{% endif %}b", "{%- if n %} a{%- endif %}\n\n{%- if n %} b{% endif -%}\n\n c", "{{- n -}}  {{- s -}}", "{{-1}}", "{{+1}}", "{{ -1 }}", "{{ 1 -}} a", "a \u00a0\u2003{%- if n %}b{% endif %}", "{{ {'a': {'b': 1}}}}", "{{ {'a': {'b': 1}}.a }}", "{{ '}}' }}", "{% if '%}' %}a{% endif %}", "{{ '{{' }}{{ \"{%\" }}", "{ {{ n }} }", "{{ n }}}", "{{{ 'a': 1 }}}", "{ % if n % }", "a{b}c%d#e", "{% set x = {'a': [1, 2]} %}{{ x.a[1] }}", "{% set a = 1 -%}   b", "{% set a -%}  x  {%- endset %}[{{ a }}]",
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ m.content|trim }}{% elif m.content is none %}{{ m.tool_calls|tojson }}{% else %}{{ m['content'] }}{% endif %}{% endfor %}", "{% for m in messages[1:] %}{{ m.role }}{{ loop.index }}{% endfor %}", "{% for m in messages[::-1] %}{{ m.role }}{% endfor %}", "{% if messages[0]['role'] == 'system' %}{% set sys = messages[0]['content'] %}{% set messages = messages[1:] %}{% endif %}{{ sys }}{{ messages|length }}", "{{ messages[-1].tool_calls[0].function.name }}", "{% set _ = l.append(9) %}{{ l }}", "{% set _ = d.update({'q': 1}) %}{{ d.q }}", "{% set q = [] %}{% for x in l %}{% set _ = q.append(x * 2) %}{% endfor %}{{ q }}{{ q.pop(0) }}{{ q }}",
    "{% set c = cycler('a', 'b', 'c') %}{% for x in range(5) %}{{ c.next() }}{{ c.current }}{% endfor %}{{ c.reset() }}{{ c.current }}", "{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}", "{% set j = joiner() %}{{ j() }}a{{ j() }}b", "{% for x in l %}{% set _ = l.append(x) if l|length < 6 %}{{ x }}{% endfor %}", "{% for k in d %}{% set _ = d.update({'new': 1}) %}{% endfor %}", "{% set g = l|map('string') %}{{ g|join }}{{ g|join }}", "{% set g = l|select('odd') %}{% for x in g %}{{ x }}{% endfor %}{% for x in g %}{{ x }}{% else %}gone{% endfor %}",
    "{% set ns = namespace(ok=true) %}{% for x in l if ns.ok %}{{ x }}{% set ns.ok = false %}{% endfor %}", "{% set ns = namespace(ok=true) %}{% for x in l if ns.ok %}{{ x }}{{ loop.last }}{% set ns.ok = false %}{% endfor %}", "{% if true %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}", "{% if n is defined and n > 3 %}{{ n }}{% endif %}", "{% if missing is not defined %}{% set missing = 'D' %}{% endif %}{{ missing }}", "{% macro m() %}{% if missing is not defined %}{% set missing = 'D' %}{% endif %}{{ missing }}{% endmacro %}{{ m() }}{{ missing }}", "{% macro m() %}{% if n is not defined %}{% set n = 'D' %}{% endif %}{{ n }}{% endmacro %}{{ m() }}",
    "{{ strftime_now('%d %B %Y') if strftime_now is defined else 'no' }}", "{% set date_string = strftime_now('%d %b %Y') %}{{ date_string }}", "{% if n %}{{ raise_exception('bad ' ~ s) }}{% endif %}", "{{ s if s else raise_exception('x') }}", "{% set x = 5 if false %}{{ x is defined }}{{ x }}", "{{ ['a', 'b']|map('upper')|join(' ' ~ n ~ ' ') }}", "{% set a, b = 'xy' %}{{ a }}{{ b }}", "{% set (a, b) = (1, 2) %}{{ a }}{{ b }}", "{% set a = b = 1 %}", "{% for x in l: %}{{ x }}{% endfor %}", "{% if n: %}a{% endif %}", "{{ range(3)|map('string')|map('length')|sum }}", "{{ m(*l) }}", "{% macro m(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*l) }}{{ m(1, *[2, 3]) }}{{ m(**{'a': 1, 'b': 2}) }}{{ m(1, 2, **{'b': 2}) }}",
]


# Where this project stops and Jinja2 goes on: memory addresses as text, complex numbers, a slice of a constant that is
# folded away.
EXCLUDED = {"{{ -3 ** 2.5 }}", "{{ (1, 2, 3)['a':] }}"} | {
    f"{{{{ (l|map('string')){rest} }}}}" for rest in (
        "|replace('', '-')", "|title", "|upper", "|wordcount", "|string|length", " is lower", " is upper")}


def cases():
    yield from (f"{{{{ {expression} }}}}" for expression in dict.fromkeys(expressions()))
    yield from dict.fromkeys(STATEMENTS)


def rendered():
    out = []
    for template in cases():
        if template in EXCLUDED:
            continue
        result = jinja_reference.render(template, json.loads(json.dumps(CONTEXT)), now=1795176000)
        # What shows a memory address has no right answer.
        if " at 0x" in result.get("text", ""):
            result = {"error": "address"}
        out.append({"template": template, **({"error": True} if "error" in result else result)})
    return {"engine": jinja_reference.jinja2.__version__, "now": 1795176000, "context": CONTEXT, "cases": out}


def write(data):
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in data["cases"])
    head = {key: value for key, value in data.items() if key != "cases"}
    return json.dumps(head, ensure_ascii=False)[:-1] + ', "cases": [\n' + lines + "\n]}\n"


def main():
    text = write(rendered())
    if "--check" not in sys.argv[1:]:
        FILE.write_text(text, encoding="utf-8")
        return 0
    if FILE.read_text(encoding="utf-8") == text:
        return 0
    print("snippets.json differs from what the installed Jinja2 renders")
    return 1


if __name__ == "__main__":
    sys.exit(main())
