"""The distinct requests of a run, and what each answers when nothing goes wrong."""

import dataclasses

from stack import ALIAS, EventStream, Stack

# One thread per worker: two of them wait for each other on a machine that is busy with other things.
SETTINGS = {
    "pool-managerd.worker_threads": "1",
    "orchestratord.worker_slots": "4",
    "orchestratord.retry.max_attempts": "1000",  # a job may meet many kills; giving up is another test's matter
    "orchestratord.retry.max_delay_ms": "200",
    "orchestratord.restart.worker_crashes_max": "0",  # workers are killed here as often as it takes
    "orchestratord.stream.reconnect_grace_ms": "120000",
    "orchestratord.queue.capacity": "1000",
}

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
CONSTRAINTS = [
    {"json_schema": PERSON, "max_tokens": 60},
    {"json_schema": {"enum": ["a wolf", "a king", "a very old woman"]}, "max_tokens": 30},
    {"regex": "[a-z]{3,9}( [a-z]{3,9}){3}\\.", "max_tokens": 60},
    {"grammar": 'root ::= ("yes" | "no") " " [0-9] [0-9]? "!"', "max_tokens": 20},
]
SAMPLERS = [
    {},
    {"temperature": 0},
    {"top_k": 40, "top_p": 0.9},
    {"min_p": 0.05, "repetition_penalty": 1.1, "frequency_penalty": 0.2},
    {"dry_multiplier": 0.8, "penalty_last_n": 32},
    {"mirostat": 2},
    {"xtc_probability": 0.5, "typical_p": 0.9},
    {"logprobs": True, "top_logprobs": 3},
]
STOPS = [{"stop": [" the"]}, {"stop": [".", " and"]}]
LENGTHS = (1, 4, 12, 24, 48, 96, 160)
WORDS = "king wolf forest old woman castle ring golden bird river night daughter miller apple horse".split()


def requests(rng, count):
    """`count` different request bodies, each with a word in its prompt that no other text has."""
    out = []
    for n in range(count):
        needle = "zq" + "".join(rng.choice("bcdfghjklmnpqrstvwxz") for _ in range(14))
        filler = " ".join(rng.choice(WORDS) for _ in range(rng.choice((0, 5, 20, 100))))
        body = {
            "model": ALIAS,
            "prompt": f"Once upon a time {filler} there was a {needle} who",
            "max_tokens": rng.choice(LENGTHS),
            "seed": rng.randrange(2**63),
            **SAMPLERS[n % len(SAMPLERS)],
        }
        if n % 6 == 4:
            body.update(rng.choice(STOPS))
        elif n % 6 == 5:
            body.update(CONSTRAINTS[n // 6 % len(CONSTRAINTS)])
        out.append(body)
    return out


OUTCOME = ("tokens_in", "tokens_out", "stop_reason", "receipt")


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the promises speak of: the token events with their ids, and the outcome of the terminal event."""

    tokens: tuple  # (id, data) per token event
    end_id: str
    outcome: dict

    @property
    def text(self):
        return "".join(data["t"] for _, data in self.tokens)


def outcome_of(end):
    return {key: end[key] for key in OUTCOME}


def reference(bodies):
    """The answer of each request from an undisturbed stack that runs one job at a time."""
    answers = []
    with Stack(settings={**SETTINGS, "orchestratord.worker_slots": "1"}) as stack:
        for body in bodies:
            reply = stack.request("POST", "/v2/tasks", {**body, "on_disconnect": "resume"})
            assert reply.status == 202, (body, reply.body)
            events = [e for e in EventStream(stack.url, reply.json["events_url"]) if e.id]
            assert events[-1].name == "end", (body, events[-1])
            tokens = tuple((e.id, e.data) for e in events if e.name == "token")
            answers.append(Answer(tokens, events[-1].id, outcome_of(events[-1].data)))
    return answers
