#!/usr/bin/python3
"""Writes corpus/formats: outputs of every format, as formats_fuzz reads them, whole and with the end missing; conversations
and tools of clients."""
import json
from pathlib import Path

CALL = '{"name": "f", "arguments": {"a": 1, "s": "x\\n<"}}'
PARAMETERS = CALL.replace("arguments", "parameters")
ARGUMENTS = '{"a": 1, "s": "x\\n<"}'
# In the order of the enumeration.
OUTPUTS = [
    CALL,
    f"<think>\nHm\n</think>\n\nSure.\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>{CALL}</tool_call>",
    "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=s>\nx\n</parameter>\n</function>\n</tool_call>",
    f"<|python_tag|>{PARAMETERS}; {PARAMETERS}",
    f'[TOOL_CALLS][{CALL[:-1]}, "id": "abcdef123"}}, {CALL}]',
    f"[THINK]Hm[/THINK][TOOL_CALLS]f[CALL_ID]abcdef123[ARGS]{ARGUMENTS}[TOOL_CALLS]now[ARGS]{{}}",
    f"<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json"
    f"<|message|>{ARGUMENTS}<|call|>",
    f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{ARGUMENTS}\n```<｜tool▁call▁end｜>"
    "<｜tool▁calls▁end｜>",
    f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{ARGUMENTS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    f"<think>Hm</think><response>Yes</response><|tool_call|>[{CALL}, {CALL}]",
    "<|tool_call_start|>[f(a=1, s='it\\'s', o={\"k\": [None, True, (1.5,2)]}), now()]<|tool_call_end|>",
    f"<|tool_call|>[{CALL}]<|/tool_call|>",
    "Sure:\n```tool_code\nf(1, s=\"x\")\n```",
    "<start_function_call>call:f{a:1,s:<escape>x<escape>,o:{k:[true,<escape>y<escape>]}}<end_function_call>",
    '<|channel>thought\nHm<channel|><|tool_call>call:f{a:1,s:<|"|>x<|"|>}<tool_call|>',
    f'<|START_THINKING|>Hm<|END_THINKING|><|START_ACTION|>[{{"tool_call_id": "0", "tool_name": "f", "parameters": '
    f"{ARGUMENTS}}}]<|END_ACTION|>",
    f"<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{ARGUMENTS}"
    "<|tool_call_end|><|tool_calls_section_end|>",
]

MESSAGES = [
    {"role": "user", "content": "x"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": ""}}]},
    {"role": "tool", "tool_call_id": "call_2", "content": "y"},
    {"role": "tool", "tool_call_id": "call_1", "content": "z"},
    {"role": "assistant", "content": "w", "tool_calls": []},
]
TOOLS = [
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "required": ["s"], "properties": {
        "a": {"type": "integer"}, "s": {"type": "string", "enum": ["x", "y"]}, "l": {"type": "array", "items": {"type": "string"}},
        "o": {"type": "object", "properties": {"k": {"type": "boolean"}}}}}}},
    {"type": "function", "function": {"name": "now"}},
]


def main():
    directory = Path(__file__).resolve().parent / "corpus/formats"
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.iterdir():
        old.unlink()
    for number, output in enumerate(OUTPUTS):
        text = output.encode()
        (directory / f"{number:02}").write_bytes(bytes([number, 100]) + text)
        (directory / f"{number:02}-cut").write_bytes(bytes([number, 100]) + text[: len(text) * 2 // 3])
        (directory / f"{number:02}-thought").write_bytes(bytes([number, 101]) + b"Hm</think>[/THINK]<|end|>" + text)
    for wanted in (0, 1, 6, 24, 31):
        (directory / f"messages-{wanted}").write_bytes(bytes([255, wanted]) + json.dumps(MESSAGES).encode())
    for wanted in (0, 2, 10, 13):
        (directory / f"tools-{wanted}").write_bytes(bytes([254, wanted]) + json.dumps(TOOLS).encode())


if __name__ == "__main__":
    main()
