"""The checks themselves see what they are there for."""

import json

import dispatch_order
import leftovers
from clients import Job, Ledger, Reader
from killer import Weather
from stack import Event
from workload import Answer


def line(event, job_id, second, **fields):
    return {"ts": f"2026-01-01T00:00:{second:02d}.000Z", "event": event, "job_id": job_id, **fields}


def rows(*jobs):
    return {
        job_id: {"priority": priority, "arrival": n, "created_at": 0, "completed_at": None}
        for n, (job_id, priority) in enumerate(jobs, 1)
    }


def order_faults(jobs, lines):
    checker = dispatch_order.Checker(rows(*jobs))
    for one in lines:
        checker.take(one)
    return len(checker.faults)


JOBS = (("a", "interactive"), ("b", "interactive"), ("c", "batch"))


def test_an_overtaken_job_is_seen():
    admit = [line("admission.accepted", job, 1) for job in "abc"]
    assert order_faults(JOBS, admit + [line("dispatch.sent", job, 2) for job in "abc"]) == 0
    assert order_faults(JOBS, admit + [line("dispatch.sent", job, 2) for job in "bac"]) == 1
    assert order_faults(JOBS, admit + [line("dispatch.sent", job, 2) for job in "cab"]) == 1
    assert order_faults(JOBS, [line("startup", None, 1)] + [line("dispatch.sent", job, 2) for job in "bac"]) == 1
    assert order_faults(JOBS, admit + [line("job.cancelled", "a", 2)] + [line("dispatch.sent", job, 3) for job in "bc"]) == 0


def test_a_retried_job_may_be_passed_only_while_it_backs_off():
    run = [line("admission.accepted", job, 1) for job in "ab"] + [line("dispatch.sent", "a", 2), line("job.retry", "a", 3, backoff_ms=2000)]
    assert order_faults(JOBS, run + [line("dispatch.sent", "b", 4)]) == 0
    assert order_faults(JOBS, run + [line("dispatch.sent", "b", 9)]) == 1


def test_lines_that_were_left_out_are_a_fault():
    lines = [line("admission.accepted", "a", 1), line("job.retry", "a", 2, backoff_ms=1), line("dispatch.sent", "a", 3)]
    assert order_faults(JOBS, lines) == 0
    lines[1]["left_out_before"] = 3
    assert order_faults(JOBS, lines) == 1
    assert order_faults(JOBS, [line("queue.dropped", "a", 1, left_out_before=3)]) == 0


ANSWER = Answer((("2-aa", {"i": 0, "t": "x"}), ("3-bb", {"i": 1, "t": "y"})), "4-bb",
                {"tokens_in": 1, "tokens_out": 2, "stop_reason": "eos", "receipt": None})


def faults_of(*events):
    ledger = Ledger()
    reader = Reader(None, ledger, Weather(), Job("t", 0, {}, ANSWER, "follow"))
    for name, event_id, data in events:
        reader.take(Event(name, event_id, json.dumps(data)))
    return ledger.faults


HEAD = (("queued", "0-e", {}), ("started", "1-e", {}))
TOKENS = (("token", "2-aa", {"i": 0, "t": "x"}), ("token", "3-bb", {"i": 1, "t": "y"}))
END = ("end", "4-bb", {**ANSWER.outcome, "decode_time_ms": 3})


def test_a_wrong_stream_is_seen():
    assert not faults_of(*HEAD, *TOKENS, END)
    assert faults_of(*HEAD, TOKENS[0], END)  # a gap
    assert faults_of(*HEAD, TOKENS[0], *TOKENS, END)  # a duplicate
    assert faults_of(*HEAD, TOKENS[0], ("token", "3-bb", {"i": 1, "t": "z"}), END)
    assert faults_of(*HEAD, TOKENS[0], ("token", "3-cc", {"i": 1, "t": "y"}), END)
    assert faults_of(*HEAD, *TOKENS, END, END)
    assert faults_of(*HEAD, *TOKENS, ("end", "4-bb", {**ANSWER.outcome, "tokens_in": 2}))
    assert faults_of(*HEAD, *TOKENS, ("error", "4-bb", {"code": "CANCELLED"}))


def test_a_broken_stream_is_excused_by_a_death_only():
    weather = Weather()
    before = weather.state()
    assert not weather.excuses(before)
    weather.goes_down()
    assert weather.excuses(before) and weather.excuses(weather.state())
    assert not weather.died_after("2026-01-01T00:00:00.000Z")
    weather.has_died()
    weather.is_up()
    assert weather.excuses(before) and not weather.excuses(weather.state())
    assert weather.died_after("2026-01-01T00:00:00.000Z") and not weather.died_after("2999-01-01T00:00:00.000Z")


def test_every_spelling_of_a_text_is_found(tmp_path):
    import base64

    text = 'zqneedle "ü\\word" of enough length'
    utf16 = text.encode("utf-16-le")
    spellings = [text.encode(), utf16, text.encode().hex().encode(), json.dumps(text).encode()]
    spellings += [base64.b64encode(b"-" * n + text.encode() + b"-" * 5) for n in range(4)]
    spellings.append("".join(f"\\u{utf16[n + 1]:02x}{utf16[n]:02x}" for n in range(0, len(utf16), 2)).encode())
    for n, spelling in enumerate(spellings):
        path = tmp_path / f"{n}"
        path.write_bytes(b"before " * n + spelling + b" after")
        assert [p for p, _ in leftovers.search([tmp_path], leftovers.text_forms(text))], spelling
        path.unlink()
    (tmp_path / "tokens").write_bytes(b'{"prompt_tokens": [1, 22, 333, 4]}')
    assert leftovers.search([tmp_path], leftovers.token_forms([22, 333]))
    assert not leftovers.search([tmp_path], leftovers.text_forms(text) + leftovers.token_forms([22, 334]))


def test_a_key_at_any_place_of_the_file_is_found(tmp_path):
    # AES-256-GCM test case 14 of the GCM specification, with its associated data empty.
    key, nonce = bytes(32), bytes(12)
    ciphertext = bytes.fromhex("cea7403d4d606b6e074ec5d3baf39d18" "d0d1c8a799996bf0265b98b5d48ab919")
    sealed = leftovers.Sealed("", nonce, ciphertext, key)
    assert sealed.opens_with(key) == bytes(16)
    file = tmp_path / "keys"
    file.write_bytes(b"\x01" * 37 + key + b"\x02" * 5)
    assert leftovers.openable([sealed], file) == [sealed]
    file.write_bytes(b"\x01" * 37 + key[1:] + b"\x02" * 5)
    assert leftovers.openable([sealed], file) == []
