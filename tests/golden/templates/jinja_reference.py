"""What python3-jinja2 renders under the settings that chat templates are made for.

trim_blocks, lstrip_blocks, loop controls, a `generation` tag that keeps its body, `tojson` as json.dumps without ASCII
escaping, raise_exception, strftime_now.
"""
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment(now=0):
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True,
                             extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(pattern):
        return datetime.datetime.utcfromtimestamp(now).strftime(pattern)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    env.filters["tojson"] = tojson
    return env


def render(template, context, now=0):
    """{"text"} or {"error"}."""
    try:
        return {"text": environment(now).from_string(template).render(**context)}
    except Exception as error:  # pylint: disable=broad-except
        return {"error": f"{type(error).__name__}: {error}"}
