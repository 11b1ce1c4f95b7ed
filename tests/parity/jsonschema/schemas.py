"""Random JSON Schemas within what the compiler supports, and the judge of what was written under them."""
import json
import random

import jsonschema

NAMES = ["id", "name", "a", "b", "value", "tags", "é", "with space", 'quote"', "a/b", "items", "x"]
PATTERNS = ["^[a-z]{1,5}$", "^(foo|bar)+$", "[0-9]", "^a.*z$", "^\\d{3}-\\d{4}$", "^[^\\s]{2,4}$", "b|^c$", "^é?[\\u4e00-\\u9fff]*$"]
FORMATS = ["date", "date-time", "time", "uuid", "ipv4", "ipv6", "email", "hostname"]


class Generator:
    """Schemas within what the compiler supports. `defs` are recursive: some branch of each ends."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def schema(self):
        definitions = {"tree": {"type": "object", "properties": {"v": {"type": "integer"},
                                "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]}},
                                "required": ["v", "next"], "additionalProperties": False},
                       "leaf": self.scalar()}
        root = self.any(3)
        if root is True:
            return root
        return {**root, "$defs": definitions}

    def any(self, depth):
        kinds = [self.scalar, self.listed, self.string, self.number, self.integer]
        if depth > 0:
            kinds += 2 * [lambda: self.object(depth), lambda: self.array(depth)]
            kinds += [lambda: self.branches(depth), lambda: self.all_of(depth), self.reference, lambda: True]
        return self.random.choice(kinds)()

    def scalar(self):
        return self.random.choice([{"type": "boolean"}, {"type": "null"}, {"type": "integer"}, {"type": "number"},
                                   {"type": "string"}, {"type": ["string", "null"]}])

    def reference(self):
        return {"$ref": self.random.choice(["#/$defs/tree", "#/$defs/leaf"]), "title": "annotations are fine"}

    def listed(self):
        values = [None, True, False, 0, 1, -7, 3.25, "red", "gr\u00fcn", 'a"b\\c\n', [1, "x"], {"k": [None]}, "", 10**12]
        if self.random.random() < 0.3:
            return {"const": self.random.choice(values)}
        return {"enum": self.random.sample(values, self.random.randint(1, 6))}

    def string(self):
        out = {"type": "string"}
        kind = self.random.randrange(4)
        if kind == 0:
            out["minLength"] = self.random.randint(0, 6)
            if self.random.random() < 0.7:
                out["maxLength"] = out["minLength"] + self.random.randint(0, 30)
        elif kind == 1:
            out["pattern"] = self.random.choice(PATTERNS)
        elif kind == 2:
            out["format"] = self.random.choice(FORMATS)
        else:
            out.update(pattern=self.random.choice(["^[a-f]+$", "x", "^\\w*$"]), minLength=2, maxLength=self.random.randint(4, 9))
        return out

    def bounds(self, digits):
        low = round(self.random.uniform(-1000, 1000), digits)
        high = round(low + self.random.choice([0.5, 1, 7, 300, 10**6]), digits)
        if digits == 0:
            low, high = int(low), int(high) + 2
        out = {}
        if self.random.random() < 0.8:
            out[self.random.choice(["minimum", "exclusiveMinimum"])] = low
        if self.random.random() < 0.8:
            out[self.random.choice(["maximum", "exclusiveMaximum"])] = high
        return out

    def integer(self):
        out = {"type": "integer", **self.bounds(0)}
        if self.random.random() < 0.3:
            out = {"type": "integer", "multipleOf": self.random.choice([2, 3, 7, 60]), "minimum": self.random.choice([-500, 0, 11])}
        return out

    def number(self):
        return {"type": "number", **self.bounds(self.random.choice([0, 1, 3]))}

    def array(self, depth):
        out = {"type": "array"}
        kind = self.random.randrange(3)
        if kind < 2:
            out["items"] = self.any(depth - 1)
            out["minItems"] = self.random.randint(0, 3)
            if self.random.random() < 0.8:
                out["maxItems"] = out["minItems"] + self.random.randint(0, 4)
        if kind > 0:
            out["prefixItems"] = [self.any(depth - 1) for _ in range(self.random.randint(1, 3))]
        return out

    def object(self, depth):
        names = self.random.sample(NAMES, self.random.randint(0, 5))
        out = {"type": "object", "properties": {name: self.any(depth - 1) for name in names}}
        if names and self.random.random() < 0.8:
            out["required"] = self.random.sample(names, self.random.randint(0, len(names)))
        extra = self.random.randrange(5)
        if extra == 0:
            out["additionalProperties"] = False
        elif extra == 1:
            out["additionalProperties"] = self.any(0)
        elif extra == 2:
            out["patternProperties"] = {"^x-": self.any(0), "[0-9]$": {"type": ["integer", "string"]}}
            if self.random.random() < 0.5:
                out["additionalProperties"] = self.random.choice([True, False, {"type": "string"}])
        elif extra == 3:
            out["propertyNames"] = {"maxLength": 12}
            out["additionalProperties"] = {"type": "integer"}
        if self.random.random() < 0.2:
            out["minProperties"] = self.random.randint(0, max(1, len(out.get("required", []))))
            out["maxProperties"] = self.random.randint(max(1, len(names)), 7)
        return out

    def branches(self, depth):
        if self.random.random() < 0.5:
            return {"anyOf": [self.any(depth - 1) for _ in range(self.random.randint(1, 3))]}
        kinds = self.random.sample(["a", "b", "c"], 2)
        return {"oneOf": [{"type": "object", "properties": {"kind": {"const": kind}, "data": self.any(depth - 1)},
                           "required": ["kind"], "additionalProperties": False} for kind in kinds] + [{"type": "null"}]}

    def all_of(self, depth):
        return {"allOf": [{"type": "object", "properties": {"p": self.any(depth - 1), "q": {"type": "string"}}},
                          {"properties": {"q": {"maxLength": 3}, "r": {"type": "integer", "minimum": 0}}, "required": ["q"]}],
                "description": "two halves"}


def check(schema, text):
    """The value that `text` spells; AssertionError when it is no JSON or python3-jsonschema finds fault with it."""
    value = json.loads(text)
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.draft202012_format_checker)
    errors = [error.message for error in validator.iter_errors(value)]
    assert not errors, (json.dumps(schema), text, errors)
    return value
