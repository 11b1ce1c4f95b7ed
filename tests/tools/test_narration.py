"""What the daemons say in their logs: a stable code, and a sentence for people that names no id."""

import re

import pytest

CALL = re.compile(r"\blog(?:_event|_limited)?\(\s*(?:base::)?LogLevel::k\w+,\s*(\"[^\"]*\"|\w+)")
SENTENCE_MAX = 100
# Says what to type, in full.
LONG = {"pool_not_paired"}


def arguments(text, at):
    """The top-level arguments of the call whose parenthesis opens at `at`."""
    depth, begin, out, i = 0, at + 1, [], at
    while i < len(text):
        c = text[i]
        if c == '"':
            i += 1
            while text[i] != '"':
                i += 2 if text[i] == "\\" else 1
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                return [*out, text[begin:i].strip()]
        elif c == "," and depth == 1:
            out.append(text[begin:i].strip())
            begin = i + 1
        i += 1
    raise AssertionError("a call without an end")


def literals(argument):
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', argument))


def calls(text):
    """(event, sentence) of each call that gives both as literals. A sentence that is chosen comes once for each choice."""
    for match in CALL.finditer(text):
        given = arguments(text, text.index("(", match.start()))
        event = literals(given[1])
        # The correlation id, or the job that has it, stands between; the core's own helper may leave it out.
        human = next((one for one in given[2:] if '"' in one and not one.startswith("{")), "")
        if event and human and not re.search(r"\b(error|fmt::format)\b|\.message", human):
            for choice in re.split(r'(?<=")\s*:\s*(?=")', human):
                yield event, literals(choice)


@pytest.fixture(name="said")
def all_sentences(repository):
    out = []
    for path in sorted((repository / "src").rglob("*.cpp")):
        if not path.name.endswith("_test.cpp"):
            out += [(path.relative_to(repository).as_posix(), *one) for one in calls(path.read_text(encoding="utf-8"))]
    return out


def test_calls_are_found():
    text = 'log_event(LogLevel::kInfo, "a.b", {}, "One, two.", {{"x", f(1, 2)}}); log(base::LogLevel::kWarn, "c", &job, up ? "Yes." : "No.");'
    assert list(calls(text)) == [("a.b", "One, two."), ("c", "Yes."), ("c", "No.")]


# ORCH-3300: significant events carry a text. Those of SYS-10.2.2 and of admission, placement, worker start, eviction, stream and cancel.
def test_significant_events_are_told(said):
    events = {event for _, event, _ in said}
    assert len(said) > 80
    assert {"admission.accepted", "admission.rejected", "dispatch.sent", "stream.ended", "worker.start", "worker.ready", "worker.stop", "job.retry",
            "pool.registered", "pool.unavailable", "execute_start", "execute_end", "auth_failed"} <= events, events


# ORCH-3305: at most 100 characters. ORCH-3312: natural language, and ids stay in fields.
def test_each_is_one_short_sentence_without_ids(said):
    wrong = [(path, event, text) for path, event, text in said
             if not (re.match(r"[A-Z]|orchestratord|pool-managerd", text) and text.endswith(".")) or "{}" in text
             or (len(text) > SENTENCE_MAX and event not in LONG)]
    assert wrong == []


def test_codes_are_stable_words(said):
    assert [event for _, event, _ in said if not re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)?", event)] == []
