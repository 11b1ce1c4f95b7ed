"""What popular clients send, as their documentation and sources have it: each request is answered.

Each row is one client's own request, with the members that it always sends. What they read of the answers is said where it is more
than the fields of the API.
"""

import base64
import json
import uuid

import pytest
from chat_model import HERMES_MARKERS, HERMES_TEMPLATE, write_chat_model
from embedding_model import write_embedding_model
from rerank_model import write_cross_encoder
from stack import MODEL, Stack, wait_for

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"], "additionalProperties": False}
FUNCTION = {"type": "function", "function": {"name": "read_file", "description": "Reads a file.", "parameters": SCHEMA}}
USER = {"role": "user", "content": "go"}
SYSTEM = {"role": "system", "content": "s"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": "{\"path\":\"a\"}"}}
PARTS = [{"type": "text", "text": "go"}]
FILL_IN_MARKERS = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|repo_name|>", "<|file_sep|>")
BROWSER = {"User-Agent": "Mozilla/5.0", "Accept": "*/*"}


@pytest.fixture(scope="module", name="stack")
def running_stack(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    write_chat_model(models / "chat", HERMES_TEMPLATE, HERMES_MARKERS)
    write_chat_model(models / "coder", markers=FILL_IN_MARKERS)
    write_embedding_model(models / "embed")
    write_cross_encoder(models / "judge")
    names = ("chat", "coder", "embed", "judge")
    settings = {f"models.aliases.{name}": f"file:{models / name}" for name in names}
    # A stream that waits long is kept alive by comments, which are no part of what the clients ask for.
    settings |= {"models.allowed_roots": f"{MODEL.parent},{models}", "orchestratord.limits.workers_per_gpu": "6", "orchestratord.stream.keep_alive_ms": "0"}
    with Stack(settings) as stack:
        for name in names:
            wait_for("the model to be known", lambda name=name: "facts" in stack.request("GET", f"/v2/catalog/models/{name}?facts=true").json)
        yield stack


def chat(**fields):
    return "POST", "/v1/chat/completions", {"model": "chat", "messages": [SYSTEM, USER], "max_tokens": 4, **fields}


def responses(**fields):
    return "POST", "/v1/responses", {"model": "chat", "input": "go", "max_output_tokens": 4, **fields}


def messages(path="/v1/messages", **fields):
    body = {"model": "chat", "max_tokens": 4, "messages": [{"role": "user", "content": PARTS}], **fields}
    if path != "/v1/messages":
        del body["max_tokens"]
    return "POST", path + "?beta=true", body


def infill(**fields):
    return "POST", "/infill", {"model": "coder", "id_slot": 0, "input_prefix": "def f(a):\n", "input_suffix": "\nprint(f(1))\n", "cache_prompt": True,
                               "input_extra": [{"filename": "a.py", "text": "b = 1\n"}], "prompt": "    ret", "t_max_prompt_ms": 500, **fields}


def ollama(path, **fields):
    return "POST", path, {"model": "chat:latest", **fields}


def billing(cch):
    return {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch={cch};"}


CLAUDE_CODE = {
    "system": [billing("fa690"), {"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "tools": [{"name": "read_file", "description": "Reads.", "input_schema": {"$schema": "http://json-schema.org/draft-07/schema#", **SCHEMA},
               "cache_control": {"type": "ephemeral"}, "eager_input_streaming": True}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "text", "text": "I read."},
                                          {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "is_error": False,
                                      "content": [{"type": "text", "text": "x"}], "cache_control": {"type": "ephemeral"}},
                                     {"type": "text", "text": "<system-reminder>be brief</system-reminder>"}]},
    ],
    "thinking": {"type": "enabled", "budget_tokens": 31_999},
}
# Its hooks speak in such messages.
CLAUDE_CODE_LATE = [CLAUDE_CODE["messages"][0], {"role": "system", "content": [{"type": "text", "text": "early"}]}, *CLAUDE_CODE["messages"][1:],
                    {"role": "system", "content": [{"type": "text", "text": "late"}]}]
CODEX = {
    "instructions": "s",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "d"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": "eA=="},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "call_1"},
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
        {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin Patch", "call_id": "call_2", "status": "completed"},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": "ok"},
        {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "d2"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "more"}]},
    ],
    "tools": [{"type": "function", "name": "shell", "description": "Runs.", "strict": False, "parameters": SCHEMA},
              {"type": "custom", "name": "apply_patch", "description": "Edits.", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}},
              {"type": "tool_search", "execution": "client"}, {"type": "web_search", "external_web_access": False}],
    "tool_choice": "auto", "parallel_tool_calls": False, "reasoning": {"effort": "medium", "summary": "auto"}, "store": False,
    "stream": True, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "0198c5a0", "text": {"verbosity": "low"},
    "client_metadata": {"session_id": "0198c5a0", "thread_id": "0198c5a1"}, "stream_options": {"reasoning_summary_delivery": "sequential_cutoff"},
}
NAMESPACE = {"type": "namespace", "name": "mcp__files", "description": "Files.", "tools": [
    {"type": "function", "name": "read_file", "description": "Reads.", "strict": False, "parameters": {
        **SCHEMA, "properties": {"path": {"enum": ["a", "b"]}}}}]}
FORMAT = {"type": "json_schema", "schema": {**SCHEMA, "properties": {"path": {"enum": ["a", "b"]}}}}
# As Ollama's clients write a call and its result.
OLLAMA_TURNS = [SYSTEM, USER, {"role": "assistant", "content": "", "tool_calls": [
    {"index": 0, "id": "call_1", "function": {"name": "read_file", "arguments": {"path": "a"}}}]},
    {"role": "tool", "content": "x", "tool_call_id": "call_1"}, USER]
AGENT_TURNS = [SYSTEM, USER, {"role": "assistant", "content": None, "tool_calls": [CALL]},
               {"role": "tool", "tool_call_id": "call_1", "name": "read_file", "content": "x"}, {"role": "user", "content": PARTS}]

# What llama.cpp's web page sends where nobody has set anything, and plugins that have its list.
LLAMA_CPP = {
    "stream": True, "cache_prompt": True, "reasoning_format": "auto", "samplers": "edkypmxt", "temperature": 0.8, "dynatemp_range": 0,
    "dynatemp_exponent": 1, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical_p": 1, "xtc_probability": 0, "xtc_threshold": 0.1,
    "repeat_last_n": 64, "repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0, "dry_multiplier": 0, "dry_base": 1.75,
    "dry_allowed_length": 2, "dry_penalty_last_n": -1, "timings_per_token": False}

REQUESTS = {
    # Chat UIs.
    "Open WebUI, models": ("GET", "/v1/models", None),
    "Open WebUI, chat": chat(stream=True, stream_options={"include_usage": True}),
    "Open WebUI, title": chat(stream=False, max_completion_tokens=4, max_tokens=4),
    "Open WebUI, embeddings": ("POST", "/v1/embeddings", {"input": ["a", "b"], "model": "embed"}),
    "Open WebUI, reranking": ("POST", "/v1/rerank", {"model": "judge", "query": "q", "documents": ["a", "b"], "top_n": 2}),
    "LibreChat": chat(stream=True, user="65f0c1", temperature=1, top_p=1, presence_penalty=0, frequency_penalty=0, stop=["||>"]),
    "LobeChat": chat(stream=True, temperature=1, top_p=1, presence_penalty=0, frequency_penalty=0, stream_options={"include_usage": True}),
    "n8n, models": ("GET", "/v1/models", None),
    "llama.cpp's web page": chat(**LLAMA_CPP, messages=[USER]),
    "llama.cpp's web page, newer": chat(stream=True, return_progress=True, reasoning_format="auto", backend_sampling=False, typ_p=1,
                                        samplers=["top_k", "typ_p", "top_p", "min_p", "temperature"], temperature=0.8, messages=[USER]),
    "Cherry Studio": chat(stream=True, stream_options={"include_usage": True}, enable_thinking=False),
    "Cherry Studio, with a budget": chat(stream=True, enable_thinking=True, thinking_budget=4096),
    "Cherry Studio, another provider": chat(stream=True, thinking={"type": "disabled"}),
    "Dify": chat(stream=True, user="u", thinking={"type": "enabled", "budget_tokens": 1024}, chat_template_kwargs={"enable_thinking": True}),
    "Jan": chat(stream=True, temperature=0.7, top_k=40, top_p=0.95, repeat_penalty=1.1, frequency_penalty=0, presence_penalty=0),
    "LM Studio's clients, without a limit": chat(stream=False, max_tokens=-1, stop=["e", "a", "t", "o", "s", "r", " ", "n"]),
    # Editors and agents.
    "Continue, chat": chat(stream=True, stop=["<|im_end|>", "<|im_start|>"], messages=[{"role": "user", "content": PARTS}]),
    "Continue, completion": ("POST", "/v1/completions", {
        "model": "demo", "prompt": "def f(", "max_tokens": 4, "temperature": 0.01, "stream": True,
        "stop": ["<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>", "<|endoftext|>", "</fim_middle>", "</code>", "\n\n",
                 "\r\n\r\n", "/src/", "#- coding: utf-8"]}),
    "Continue by llama.cpp": ("POST", "/completion", {
        "model": "demo", "prompt": "<fim_prefix>def f(<fim_suffix>)<fim_middle>", "stream": True, "n_predict": 4, "temperature": 0.01,
        "top_p": None, "min_p": None, "mirostat": None, "frequency_penalty": None, "presence_penalty": None,
        "stop": ["<fim_prefix>", "<|endoftext|>", "\n\n"]}),
    "llama.vscode, is it there": ("GET", "/v1/health", None),
    "llama.vscode, model": ("GET", "/props?model=demo", None),
    "llama.vscode, completion": infill(n_predict=4, n_cmpl=3, top_k=40, top_p=0.99, stream=False, samplers=["top_k", "top_p", "infill"],
                                       n_indent=4, t_max_predict_ms=1000),
    "llama.vscode, preparation": infill(n_predict=0, samplers=[], t_max_predict_ms=1),
    "llama.vscode, edit": chat(stream=False, cache_prompt=True, temperature=0.8, top_p=0.95),
    "llama.vscode, edit, older": chat(**{**LLAMA_CPP, "stream": False}),
    "Goose by Ollama": chat(stream=True, stream_options={"include_usage": True}, tools=[FUNCTION], messages=AGENT_TURNS, max_tokens=None,
                            options={"num_predict": 4, "num_ctx": 4096}),
    "Qwen Code": chat(stream=True, stream_options={"include_usage": True}, tools=[FUNCTION], messages=AGENT_TURNS, reasoning={"effort": "medium"}),
    "Qwen Code, without thoughts": chat(stream=True, reasoning={"enabled": False}),
    "aider": chat(stream=True, temperature=0, messages=[SYSTEM, USER, {"role": "assistant", "content": "Ok."}, USER]),
    "Zed": chat(stream=True, stream_options={"include_usage": True}, max_completion_tokens=4, stop=[], temperature=1.0, tools=[FUNCTION],
                tool_choice="auto", parallel_tool_calls=False, prompt_cache_key="p", messages=AGENT_TURNS),
    "Cline": chat(stream=True, stream_options={"include_usage": True}, temperature=0, messages=[SYSTEM, {"role": "user", "content": PARTS}]),
    "Copilot, chat with a model of Ollama": chat(model="chat:latest", stream=True, n=1, temperature=0.1, top_p=1, tools=[FUNCTION],
                                                 messages=AGENT_TURNS),
    "Copilot by responses": responses(stream=True, store=True, truncation="disabled", include=["reasoning.encrypted_content"], reasoning={
        "effort": "medium", "summary": "detailed"}, tools=[{"type": "function", "name": "read_file", "description": "Reads.", "strict": False, "parameters": SCHEMA}],
        tool_choice="auto", input=[
            {"role": "system", "content": [{"type": "input_text", "text": "s"}]}, {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
            {"type": "message", "id": "msg_123", "status": "completed", "role": "assistant", "content": [{"type": "output_text", "text": "I read.", "annotations": []}]},
            {"type": "function_call", "name": "read_file", "arguments": "{}", "call_id": "call_1"},
            {"type": "function_call_output", "call_id": "call_1", "output": ""}, {"role": "user", "content": [{"type": "input_text", "text": "more"}]}]),
    "Obsidian Copilot by LM Studio": responses(stream=True, temperature=0.1, text={"format": {"type": "text"}}),
    "OpenCode": chat(stream=True, stream_options={"include_usage": True}, max_tokens=32_000, tools=[FUNCTION], tool_choice="auto",
                     messages=AGENT_TURNS),
    "Roo Code": chat(stream=True, stream_options={"include_usage": True}, temperature=0, max_tokens=128_000),
    # Frameworks.
    "smolagents": chat(tool_choice="required", stop=["Observation:"], messages=[{"role": "user", "content": PARTS}], tools=[
        {"type": "function", "function": {"name": "read_file", "description": "Reads.", "parameters": {
            "type": "object", "properties": {"path": {"type": "string", "description": "p", "nullable": True}}}}}]),
    "Pydantic AI": chat(response_format={"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": {
        "type": "object", "required": ["at"], "additionalProperties": False, "properties": {"at": {
            "discriminator": {"propertyName": "kind", "mapping": {"f": "#/$defs/F"}}, "oneOf": [{"$ref": "#/$defs/F"}]}},
        "$defs": {"F": {"type": "object", "additionalProperties": False, "required": ["kind"], "example": {"kind": "f"},
                        "properties": {"kind": {"const": "f"}, "path": {"type": "string", "format": "file-path"}}}}}}}),
    "instructor, with a schema": chat(response_format={"type": "json_object", "schema": {
        "type": "object", "properties": {"at": {"enum": ["a", "b"]}}, "required": ["at"], "additionalProperties": False}}),
    "instructor, with a schema of no name": chat(response_format={"type": "json_schema", "json_schema": {"schema": FORMAT["schema"]}}),
    "SillyTavern by vLLM": ("POST", "/v1/completions", {
        "model": "demo", "prompt": "Once", "max_tokens": 4, "stream": True, "n": 1, "temperature": 1, "top_k": -1, "top_p": 1, "min_p": 0,
        "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0, "ignore_eos": False, "min_tokens": 0, "stop": ["\nUser:"],
        "skip_special_tokens": True, "spaces_between_special_tokens": True, "include_stop_str_in_output": False}),
    "vLLM's clients, all that is neutral": chat(
        stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}, best_of=1, use_beam_search=False,
        length_penalty=1.0, early_stopping=False, priority=0, truncate_prompt_tokens=None, min_p=0.0, top_k=-1),
    "llama.cpp's manual, with a schema": chat(response_format={"type": "json_schema", "schema": FORMAT["schema"]}),
    "LlamaIndex": chat(temperature=0.1, stream=False, tools=[FUNCTION], tool_choice="auto", messages=AGENT_TURNS),
    "Vercel AI SDK, compatible": chat(stream=True, response_format={"type": "json_schema", "json_schema": {
        "name": "response", "schema": {**SCHEMA, "$schema": "http://json-schema.org/draft-07/schema#"}}}),
    "Vercel AI SDK, responses": responses(store=False, stream=True, include=["reasoning.encrypted_content"], input=[
        {"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "input_text", "text": "go"}]}]),
    "Vercel AI SDK, embeddings": ("POST", "/v1/embeddings", {"model": "embed", "input": ["a"], "encoding_format": "float"}),
    "Strands, structured": chat(stream=True, stream_options={"include_usage": True}, tools=[], json_schema=FORMAT["schema"], extra_body={"cache_prompt": True}),
    "RAGFlow, embeddings": ("POST", "/v1/embeddings", {"model": "embed", "input": ["a"], "encoding_format": "float", "drop_params": True}),
    "RAGFlow, chat": chat(stream=True, temperature=0.1, drop_params=True),
    "Codex CLI": responses(**CODEX),
    "Codex CLI, with a tool of any text": responses(**{**CODEX, "tools": [{"type": "custom", "name": "note", "description": "Notes.", "format": {"type": "text"}}]}),
    "OpenAI Agents SDK, structured": responses(store=False, text={"format": {"name": "final_output", "strict": True, **FORMAT}}, tools=[
        {"type": "function", "name": "read_file", "description": "Reads.", "strict": True, "parameters": SCHEMA}]),
    "OpenAI Agents SDK, structured, by chat": chat(tools=[FUNCTION], messages=AGENT_TURNS, response_format={"type": "json_schema", "json_schema": {
        "name": "final_output", "strict": True, "schema": FORMAT["schema"]}}),
    "vLLM's clients, a score": ("POST", "/v1/completions", {"model": "demo", "prompt": "Once upon", "max_tokens": 1, "prompt_logprobs": 1}),
    "Codex CLI, with servers of tools": responses(**{**CODEX, "tools": [NAMESPACE]}),
    # Claude Code.
    "Claude Code, turn": messages(**CLAUDE_CODE, stream=True, temperature=1, metadata={"user_id": "user_1"}, max_tokens=32_000,
                                  stop_sequences=["</x>"]),
    "Claude Code, newer": messages(**{**CLAUDE_CODE, "thinking": {"type": "adaptive"}}, stream=True, output_config={"effort": "medium"},
                                   context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}),
    "Claude Code, a system message between the turns": messages(**{**CLAUDE_CODE, "messages": CLAUDE_CODE_LATE}, stream=True),
    "Claude Code, count": messages("/v1/messages/count_tokens", **CLAUDE_CODE),
    "Claude Code, is it there": ("HEAD", "/", None),
    # Other clients of the Anthropic API.
    "LangChain.js, older": messages(stream=True, temperature=1, top_k=-1, top_p=-1, stop_sequences=[], messages=[{"role": "user", "content": "go"}]),
    "LangChain, structured": messages(output_format=FORMAT, max_tokens=64),
    "LangChain, count": messages("/v1/messages/count_tokens", output_format=FORMAT),
    "Vercel AI SDK by Anthropic": messages(stream=True, temperature=0, max_tokens=64, system=[{"type": "text", "text": "s"}], output_config={
        "effort": "low", "format": FORMAT, "task_budget": {"type": "tokens", "total": 20_000}}),
    "LiteLLM by Anthropic": messages(**CLAUDE_CODE, tool_choice={"type": "auto", "disable_parallel_tool_use": False}, metadata={}, stream=False),
    # Ollama's command line and its clients.
    "ollama, heartbeat": ("HEAD", "/", None),
    "ollama, version": ("GET", "/api/version", None),
    "ollama list": ("GET", "/api/tags", None),
    "ollama list, looking first": ("HEAD", "/api/tags", None),
    "ollama ps": ("GET", "/api/ps", None),
    "ollama show": ollama("/api/show", name="", verbose=False, system="", template="", options=None),
    "ollama show, older": ("POST", "/api/show", {"name": "chat"}),
    "ollama run, load": ollama("/api/generate", prompt="", suffix="", system="", template="", raw=False, keep_alive="5m", options={}),
    "ollama run, turn": ollama("/api/chat", messages=[USER], stream=True, format="", keep_alive="5m", options={"num_predict": 4}, think=False),
    "ollama stop": ollama("/api/generate", prompt="", keep_alive=0),
    "Open WebUI by Ollama": ollama("/api/chat", messages=[USER], stream=True, keep_alive="5m", options={"num_ctx": 2048, "num_predict": 4}),
    "Zed by Ollama": ollama("/api/chat", messages=[SYSTEM, USER], stream=True, keep_alive=-1, tools=[FUNCTION], think=None,
                            options={"num_ctx": 4096, "num_predict": 4, "stop": [], "temperature": 1.0}),
    "Continue by Ollama": ollama("/api/generate", prompt="def f(", suffix="", raw=False, stream=True, keep_alive=1800, options={
        "num_predict": 4, "num_ctx": 4096, "temperature": 0.01, "mirostat": None, "top_p": None,
        "stop": ["<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>", "<|endoftext|>", "\n\n"]}),
    "Continue by Ollama, thoughts": ollama("/api/chat", stream=True, keep_alive=1800, messages=[
        USER, {"role": "thinking", "content": "hm"}, {"role": "assistant", "content": "Ok."}, USER], options={"num_predict": 4, "num_ctx": 8192}),
    "Open WebUI by Ollama, tools": ollama("/api/chat", messages=OLLAMA_TURNS, stream=True, tools=[FUNCTION, {
        "type": "function", "function": {"name": "files.server/read", "description": "", "parameters": None}}],
        options={"num_predict": 4, "temperature": 0.8, "top_k": 40, "repeat_last_n": 64, "num_keep": 24, "use_mmap": True, "tfs_z": 1}),
    "LiteLLM by Ollama": ollama("/api/chat", messages=OLLAMA_TURNS, stream=False, format=FORMAT["schema"], options={
        "num_predict": 64, "temperature": 0.0, "repeat_penalty": 0, "seed": 1, "stop": ["x"], "think": True}),
    "Vercel AI SDK by Ollama": ollama("/api/chat", temperature=0.5, max_output_tokens=4, think=False, tool_choice="auto", stream=True, messages=[
        SYSTEM, {"role": "user", "content": []}, *OLLAMA_TURNS[2:]], options={"num_predict": 4}, tools=[
            {"type": "function", "function": {**FUNCTION["function"], "strict": False}}]),
    "LangChain.js by Ollama": ollama("/api/chat", messages=[USER, {"role": "assistant", "content": "", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "read_file", "arguments": {}}}]}, {"role": "tool", "content": "x"}],
        stream=True, options={"num_predict": 4, "numa": False, "f16_kv": True, "penalize_newline": True}),
    "Home Assistant by Ollama": ollama("/api/chat", messages=OLLAMA_TURNS, stream=True, tools=[FUNCTION], keep_alive=-1, think=False, options={
        "num_ctx": 8192, "num_predict": 4}),
    "Vercel AI SDK by Ollama, completion": ollama("/api/generate", max_tokens=4, stop=[], prompt="go", stream=False, options={"num_predict": 4}),
    "LlamaIndex by Ollama": ("POST", "/api/embed", {"model": "embed", "input": ["a"], "options": {}, "keep_alive": "5m", "truncate": True}),
}


@pytest.mark.parametrize("client", REQUESTS)
def test_it_is_answered(stack, client):
    method, path, body = REQUESTS[client]
    response = stack.request(method, path, body, {"Anthropic-Version": "2023-06-01"} if "/v1/messages" in path else {})
    assert response.status == 200, response.body
    text = response.body.decode()
    assert '"error":{' not in text and "event: error" not in text and "response.failed" not in text, text
    stream = isinstance(body, dict) and body.get("stream") and "/api/" not in path
    assert not stream or response.headers["content-type"].startswith("text/event-stream")
    assert not stream or not any(line.startswith(":") for line in text.split("\n")), "Home Assistant's and other programs take any line for data"


# n8n's credential for Ollama, and other programs with a field for a key that may stay empty.
@pytest.mark.parametrize("field", ["Bearer ", "Bearer none"])
def test_a_token_where_none_is_configured(stack, field):
    for path in ("/api/tags", "/v1/models", "/props?model=demo"):
        assert stack.request("GET", path, headers={"Authorization": field}).status == 200, path
    assert stack.request("GET", "/v2/tasks", headers={"Authorization": field}).status == 401


# Clients of servers of one model name none.
def test_the_only_model_needs_no_name(stack, tmp_path):
    asked = {"prompt": "Once upon", "max_tokens": 4, "seed": 7}
    several = stack.request("POST", "/v1/completions", asked)
    assert several.status == 400 and several.json["error"]["param"] == "model"
    assert all(name in several.json["error"]["message"] for name in ("chat", "coder", "demo")), several.body
    assert not any(name in several.json["error"]["message"] for name in ("embed", "judge")), "they are known to write nothing"
    write_embedding_model(tmp_path / "embed")
    own = Stack({"models.aliases.embed": f"file:{tmp_path / 'embed'}", "models.allowed_roots": f"{MODEL.parent},{tmp_path}"})
    del own.settings["models.aliases.demo-f16"]
    with own:
        facts = "/v2/catalog/models/embed?facts=true"
        wait_for("the model that embeds to be known", lambda: "facts" in own.request("GET", facts).json)
        unnamed = [own.request("POST", "/v1/completions", {**asked, **model}) for model in ({}, {"model": ""}, {"model": None}, {"n": 2})]
        assert [answer.status for answer in unnamed] == [200] * 4, unnamed[0].body
        assert [answer.json["model"] for answer in unnamed] == ["demo"] * 4
        named = own.request("POST", "/v1/completions", {**asked, "model": "demo"}).json
        assert [answer.json["choices"][0]["text"] for answer in unnamed] == [named["choices"][0]["text"]] * 4
        assert own.request("POST", "/v1/chat/completions", {"messages": [USER]}).json["error"]["param"] != "model", "it has no chat template"
        assert own.request("POST", "/completion", {"prompt": "Once upon", "n_predict": 4}).json["model"] == "demo"
        assert own.request("POST", "/embedding", {"content": "a"}).status == 200, "there is one that embeds"
        assert "several" in own.request("POST", "/tokenize", {"content": "a"}).json["error"]["message"]
        assert own.request("POST", "/v1/responses", {"input": "go"}).json["error"]["param"] == "model", "what is kept has a name"


# What a client moves, renames or sends beside it means what its own server makes of it.
def test_fields_of_other_servers_mean_what_they_say(stack):
    def answer(**fields):
        _, path, body = chat(**{"temperature": 1, "seed": 7, **fields})
        response = stack.request("POST", path, body)
        assert response.status == 200, response.body
        return response.json

    def said(**fields):
        return answer(**fields)["choices"][0]["message"]["content"]

    plain = said(max_tokens=40)
    assert answer(max_tokens=None, options={"num_predict": 6})["usage"]["completion_tokens"] == 6
    neutral = {**LLAMA_CPP, "stream": False, "temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0}
    assert said(max_tokens=40, **neutral) == plain
    assert said(max_tokens=40, repeat_penalty=2) == said(max_tokens=40, repetition_penalty=2) != plain
    assert said(max_tokens=40, repeat_penalty=2, repeat_last_n=0) == plain == said(max_tokens=40, top_k=1, samplers=["temperature"])
    schema = {"type": "object", "properties": {"at": {"enum": ["a", "b"]}}, "required": ["at"], "additionalProperties": False}
    assert json.loads(said(max_tokens=200, response_format={"type": "json_object", "schema": schema})).keys() == {"at"}
    assert json.loads(said(max_tokens=200, response_format={"type": "json_schema", "schema": schema})).keys() == {"at"}
    assert json.loads(said(max_tokens=200, json_schema=schema, extra_body={"json_schema": {"type": "integer"}})).keys() == {"at"}


# Copilot lists what /api/tags has, looks at each with /api/show, and chats by that name under /v1.
def test_what_copilot_reads(stack):
    names = [model["name"] for model in stack.request("GET", "/api/tags").json["models"]]
    assert "chat:latest" in names
    shown = stack.request("POST", "/api/show", {"model": "chat:latest"}).json
    family = shown["model_info"]["general.architecture"]
    assert shown["model_info"][f"{family}.context_length"] > 0 and shown["model_info"]["general.basename"] == "chat"
    assert "tools" in shown["capabilities"] and "completion" in shown["capabilities"]
    assert stack.request("GET", "/v1/models/chat:latest").status == 200


# Koog looks at every model that is listed; a member that it misses or a capability that it does not know ends the list.
def test_what_koog_reads(stack):
    known = {"audio", "completion", "embedding", "insert", "vision", "thinking", "tools"}
    for model in stack.request("GET", "/api/tags").json["models"]:
        shown = stack.request("POST", "/api/show", {"name": model["name"]}).json
        info, details = shown["model_info"], shown["details"]
        family = info["general.architecture"]
        assert info[f"{family}.context_length"] > 0 and info[f"{family}.embedding_length"] > 0, model
        assert set(shown["capabilities"]) <= known and all(isinstance(details[name], str) for name in ("format", "family", "parameter_size")), shown


# Reins compares it, and Dart's clients send no Accept.
def test_what_reins_reads(stack):
    assert stack.request("GET", "/").body == b"Ollama is running"


# The Vercel AI SDK's provider for Ollama takes no completion without one; a client that sends it back is answered.
def test_a_generation_ends_with_an_empty_context(stack):
    _, path, body = REQUESTS["Vercel AI SDK by Ollama, completion"]
    context = stack.request("POST", path, body).json["context"]
    assert context == [] and stack.request("POST", path, {**body, "context": context}).status == 200


# LiteLLM and others take a model for one that calls tools where its template speaks of them, and else write them into the prompt.
def test_a_template_speaks_of_what_the_model_does(stack):
    shown = {name: stack.request("POST", "/api/show", {"model": name}).json["template"] for name in ("chat", "coder", "embed")}
    assert ".Tools" in shown["chat"] and "tools" not in shown["coder"].lower() and ".Suffix" in shown["coder"] and shown["embed"] == ""


# What Claude Code reads while a call comes: blocks in order, the input in pieces of JSON.
def test_a_call_as_an_agent_reads_it(stack):
    known = {**SCHEMA, "properties": {"path": {"enum": ["a", "b"]}}}
    tools = [{**CLAUDE_CODE["tools"][0], "input_schema": known}]
    _, path, body = messages(**{**CLAUDE_CODE, "tools": tools, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}, stream=True)
    response = stack.request("POST", path, {**body, "max_tokens": 200})
    events = [json.loads(line[6:]) for line in response.body.decode().split("\n") if line.startswith("data: ")]
    starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [block["type"] for block in starts][-1] == "tool_use" and starts[-1]["name"] == "read_file"
    partial = "".join(event["delta"].get("partial_json", "") for event in events if event["type"] == "content_block_delta")
    assert json.loads(partial).keys() == {"path"}
    assert [event["delta"]["stop_reason"] for event in events if event["type"] == "message_delta"] == ["tool_use"]


# A line of the system prompt changes with each request; a prompt that begins otherwise is read anew from there.
def test_a_turn_begins_as_the_one_before_it(stack):
    def prompt_of(**fields):
        answer = stack.request(*messages(**{**CLAUDE_CODE, **fields}))
        assert answer.status == 200, answer.body
        return answer.json["llorch"]["receipt"]["prompt_sha256"]

    prompts = [prompt_of(system=[billing(cch), *CLAUDE_CODE["system"][1:]]) for cch in ("fa690", "0bb17")]
    assert prompts == [prompt_of(system="s")] * 2
    assert prompt_of(system=billing("0bb17")["text"] + "\ns") == prompts[0]


# Templates in the words of Qwen3.5, Gemma and Mistral: one system message, none, and turns by turns.
REFUSALS = {
    "one": "{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be at the beginning.') }}{% endif %}",
    "none": "{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}",
    "turns": "{% if m.role in ('system', 'user') and not loop.first and (m.role == 'system' or loop.previtem.role not in ('system', 'assistant')) %}"
             "{{ raise_exception('roles must alternate') }}{% endif %}",
}


@pytest.fixture(scope="module", name="strict_stack")
def running_strict_stack(tmp_path_factory):
    models = tmp_path_factory.mktemp("strict")
    for name, refusal in REFUSALS.items():
        write_chat_model(models / name, HERMES_TEMPLATE.replace("{% for m in messages %}", "{% for m in messages %}" + refusal), HERMES_MARKERS)
    settings = {f"models.aliases.{name}": f"file:{models / name}" for name in REFUSALS}
    with Stack(settings | {"models.allowed_roots": str(models), "orchestratord.limits.workers_per_gpu": "4"}) as stack:
        for name in REFUSALS:
            wait_for("the model to be known", lambda name=name: "facts" in stack.request("GET", f"/v2/catalog/models/{name}?facts=true").json)
        yield stack


# Codex's instructions and developer messages, Claude Code's system messages: told in roles that the template takes (ADR 0087).
@pytest.mark.parametrize("name", REFUSALS)
def test_agents_are_answered_by_models_of_strict_templates(strict_stack, name):
    for method, path, body in (responses(**CODEX), messages(**CLAUDE_CODE, stream=True), messages(**{**CLAUDE_CODE, "messages": CLAUDE_CODE_LATE})):
        answer = strict_stack.request(method, path, {**body, "model": name})
        assert answer.status == 200, answer.body
        text = answer.body.decode()
        assert '"error":{' not in text and "event: error" not in text and "response.failed" not in text, text


def test_later_system_messages_are_the_users_where_a_template_takes_one(strict_stack):
    def prompt_of(*turns):
        sent = {"model": "one", "messages": [{"role": role, "content": text} for role, text in turns], "max_tokens": 4}
        answer = strict_stack.request("POST", "/v1/chat/completions", sent)
        assert answer.status == 200, answer.body
        return answer.json["llorch"]["receipt"]["prompt_sha256"]

    agents = prompt_of(("system", "s"), ("developer", "d"), ("user", "a"), ("assistant", "b"), ("developer", "l"), ("user", "c"))
    assert agents == prompt_of(("system", "s\n\nd"), ("user", "a"), ("assistant", "b"), ("user", "l\n\nc"))


# What Codex reads of a call to a server of tools, and sends back with the result.
def test_a_call_of_a_namespace_comes_and_goes_by_both_names(stack):
    _, path, body = responses(tools=[NAMESPACE], tool_choice="required", parallel_tool_calls=False, max_output_tokens=200, seed=1, store=True)
    answer = stack.request("POST", path, body).json
    call = answer["output"][-1]
    assert (call["type"], call["name"], call["namespace"]) == ("function_call", "read_file", "mcp__files"), answer
    assert json.loads(call["arguments"]).keys() == {"path"} and answer["tools"] == [NAMESPACE]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "x"}

    def tokens(**fields):
        counted = stack.request("POST", "/v1/responses/input_tokens", {"model": "chat", "tools": [NAMESPACE], **fields})
        assert counted.status == 200, counted.body
        return counted.json["input_tokens"]

    whole = tokens(input=[{"role": "user", "content": "go"}, call, result])
    assert tokens(input=[result], previous_response_id=answer["id"]) == whole
    plain = {**NAMESPACE["tools"][0], "name": "mcp__files__read_file"}
    named = {key: value for key, value in call.items() if key != "namespace"} | {"name": plain["name"]}
    flat = stack.request("POST", "/v1/responses/input_tokens", {
        "model": "chat", "tools": [plain], "input": [{"role": "user", "content": "go"}, named, result]})
    assert flat.json["input_tokens"] == whole, "the model reads one function of a joined name"


# Clients look for these words to make a conversation shorter: LiteLLM, Claude Code, and those of llama.cpp's server.
def test_a_full_context_is_told_in_the_words_of_each_api(stack):
    long = "word " * 20_000

    def refusal(path, **fields):
        response = stack.request("POST", path, fields)
        assert response.status == 400, response.body
        return response.json["error"]

    asked = {"model": "chat", "messages": [{"role": "user", "content": long}]}
    assert refusal("/v1/chat/completions", **asked)["message"].startswith("This model's maximum context length is ")
    assert refusal("/v1/messages", **asked, max_tokens=4)["message"].startswith("prompt is too long: ")
    error = refusal("/completion", model="demo", prompt=long)
    assert error["type"] == "exceed_context_size_error" and error["n_prompt_tokens"] > error["n_ctx"] > 0


# Ollama's command line prints the first twelve digits of a digest and ends where there are none.
def test_every_model_has_a_digest_from_the_start(tmp_path):
    settings = {f"models.aliases.{name}": f"file:{tmp_path / name}.gguf" for name in ("here", "there")}
    with Stack(settings) as stack:
        models = stack.request("GET", "/api/tags").json["models"]
        assert {"here:latest", "there:latest"} <= {model["name"] for model in models}
        assert [len(model["digest"]) for model in models] == [64] * len(models)


# A page of a listed site may send whatever its client adds: SDKs add headers of their own with every release.
def test_a_page_may_send_its_clients_headers(tmp_path):
    programs = "app://obsidian.md,http://tauri.localhost,chrome-extension://abcdefghijklmnopabcdefghijklmnop,file://"
    with Stack({"orchestratord.cors_origins": f"https://chat.example,{programs}"}) as stack:
        wanted = "authorization,content-type,x-stainless-os,x-stainless-new-thing,http-referer,x-title"
        for origin in ("https://chat.example", *programs.split(",")):
            asked = stack.request("OPTIONS", "/v1/chat/completions", None, {
                **BROWSER, "Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": wanted})
            assert asked.status == 204 and asked.headers["access-control-allow-origin"] == origin
            allowed = {name.strip().lower() for name in asked.headers["access-control-allow-headers"].split(",")}
            assert allowed.issuperset(wanted.split(","))
        refused = stack.request("OPTIONS", "/v1/chat/completions", None, {
            **BROWSER, "Origin": "https://other.example", "Access-Control-Request-Method": "POST"})
        assert refused.status == 403 and "access-control-allow-headers" not in refused.headers


def test_what_cannot_be_read_is_refused_with_the_way_out(stack):
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(b"%PDF-1.7").decode()}}
    refused = stack.request("POST", "/v1/messages", {"model": "chat", "max_tokens": 4, "messages": [{"role": "user", "content": [pdf]}]})
    assert refused.status == 400 and "send its text" in refused.json["error"]["message"]
    document = {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "d"}}
    read = stack.request("POST", "/v1/messages", {"model": "chat", "max_tokens": 4, "messages": [{"role": "user", "content": [document]}]})
    assert read.status == 200
    refused = stack.request("POST", "/v1/responses", {"model": "chat", "input": [{"type": "item_reference", "id": "msg_1"}]})
    assert refused.status == 404 and "store" in refused.json["error"]["message"]
    _, path, body = responses(seed=7, input=[{"role": "user", "content": "go"}])
    of_nobody = f"rs_{uuid.uuid4()}_0"
    answers = []
    for thoughts in ([], ["rs_1"], [of_nobody, "rs_2"]):
        references = [{"type": "item_reference", "id": an_id} for an_id in thoughts]
        answers.append(stack.request("POST", path, {**body, "input": [*body["input"], *references, USER]}))
    assert [answer.status for answer in answers] == [200] * 3, "Vercel AI SDK, thoughts of the turn before"
    assert len({answer.json["llorch"]["receipt"]["prompt_sha256"] for answer in answers}) == 1
