#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>

#include <boost/json/parse.hpp>

#include "grammar/ir/code_points.h"
#include "grammar/json_schema/numbers.h"
#include "grammar/testing/small_vocabulary.h"

namespace llorch::grammar {
namespace {

using ::testing::HasSubstr;

bool accepts(std::string_view schema, std::string_view text) {
  static const testing::SmallVocabulary vocabulary = testing::bytes_and({});
  const auto grammar = Grammar::from_json_schema(schema);
  EXPECT_TRUE(grammar) << schema << ": " << grammar.error().message;
  Matcher matcher = Matcher::create(*grammar, vocabulary.trie).value();
  for (const char c : text) {
    if (!matcher.accept(TokenId{static_cast<std::uint8_t>(c)})) return false;
  }
  return matcher.is_complete();
}

struct Case {
  std::string schema;
  std::vector<std::string> valid;
  std::vector<std::string> invalid;
};

void check(const std::vector<Case>& cases) {
  for (const Case& each : cases) {
    for (const auto& text : each.valid) EXPECT_TRUE(accepts(each.schema, text)) << each.schema << " " << text;
    for (const auto& text : each.invalid) EXPECT_FALSE(accepts(each.schema, text)) << each.schema << " " << text;
  }
}

TEST(JsonSchema, Scalars) {
  check({
      {"true", {"1", "{}", "[null, {\"a\": [1.5e3]}]", "\"x\""}, {"", "x", "{", "[1,]", "01"}},
      {R"({"type": ["null", "boolean"]})", {"null", "true", "false"}, {"1", "nul"}},
      {R"({"enum": [1, "a\"é", null, {"k": [1, 2]}, 0.5]})",
       {"1", R"("a\"é")", "null", R"({"k": [1, 2]})", "0.5"},
       {"2", R"("a")", "5E-1"}},
      {R"({"enum": [1, 2.5, "abc", "x"], "type": ["integer", "string"], "maxLength": 1})",
       {"1", "\"x\""},
       {"2.5", "\"abc\""}},
      {R"({"const": 3, "minimum": 2})", {"3"}, {"2"}},
      {R"({"type": "string"})",
       {R"("")", R"("\u0041\n\ud83d\ude00é")"},
       {R"("\ud83d")", R"("\x")", "\"\n\"", "\"\xFF\""}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("é\ud83d\ude00x")"},
       {R"("a")", R"("abcd")"}},
      {R"({"type": "string", "pattern": "b+$"})", {R"("b")", R"("xabb")"}, {R"("bx")", R"("")"}},
      {R"({"type": "string", "pattern": "^[\"\\\\\\n]$"})",
       {R"("\"")", R"("\\")", R"("\n")"},
       {R"("\u000a")", R"("a")"}},
      {R"({"pattern": "^[ab]*$", "minLength": 2, "maxLength": 4})",
       {R"("ab")", R"("aaaa")"},
       {R"("a")", R"("abc")", R"("aaaaa")", "1"}},
      {R"({"type": "string", "format": "date"})",
       {R"("2024-02-28")", R"("1999-12-31")"},
       {R"("2024-02-30")", R"("2024-2-1")"}},
      {R"({"type": "string", "format": "date-time"})",
       {R"("2024-02-28T23:59:59Z")", R"("2024-02-28T00:00:00.123+01:00")"},
       {R"("2024-02-28")"}},
      {R"({"type": "string", "format": "ipv4"})", {R"("255.0.10.199")"}, {R"("256.0.0.1")", R"("01.0.0.1")"}},
  });
}

TEST(JsonSchema, Containers) {
  check({
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
       {"[1]", "[1, 2,3]", "[\n  1]"},
       {"[]", "[1,2,3,4]", "[1.5]"}},
      {R"({"prefixItems": [{"type": "integer"}, {"type": "string"}]})",
       {"[]", "[1]", "[1, \"a\"]"},
       {"[\"a\"]", "[1, \"a\", 2]"}},
      {R"({"prefixItems": [{"type": "integer"}], "items": {"type": "null"}, "minItems": 2, "maxItems": 3})",
       {"[1, null]", "[1, null, null]"},
       {"[1]", "[1, 1]", "[1,null,null,null]"}},
      {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["b"]})",
       {R"({"a": 1, "b": null})", R"({"b":null})"},
       {R"({"a": 1})", R"({"b": null, "a": 1})", R"({"b": null, "c": 1})", "{}"}},
      {R"({"type": "object"})", {"{}", R"({"x": [1], "y": {}})"}, {"[]"}},
      {R"({"properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "null"}})",
       {"{}", R"({"a": 1})", R"({"b": null})", R"({"a": 1, "b": null, "": null})"},
       {R"({"b": 1})", R"({"b": null, "a": 1})", R"({"a": null})"}},
      {R"({"patternProperties": {"^s": {"type": "string"}, "n$": {"minLength": 1}}, "additionalProperties": false})",
       {R"({"s": "", "sn": "x", "xn": "y"})"},
       {R"({"sn": ""})", R"({"x": 1})", R"({"s": 1})"}},
      {R"({"properties": {"ab": true}, "patternProperties": {"^a": {"type": "integer"}}})",
       {R"({"ab": 1, "ac": 2})"},
       {R"({"ab": "x"})"}},
      {R"({"propertyNames": {"pattern": "^[a-z]+$", "maxLength": 3}, "additionalProperties": {"type": "integer"}})",
       {R"({"abc": 1})"},
       {R"({"abcd": 1})", R"({"A": 1})"}},
      {R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}, "minProperties": 1, "maxProperties": 2})",
       {R"({"a": 1})", R"({"b": 2, "c": 3})"},
       {"{}", R"({"a": 1, "b": 2, "c": 3})"}},
      {R"({"type": "object", "maxProperties": 2})", {"{}", R"({"a": 1, "b": 2})"}, {R"({"a": 1, "b": 2, "c": 3})"}},
      {R"({"required": ["id"], "additionalProperties": {"type": "integer"}})",
       {R"({"id": 4})", R"({"id": 4, "x": 5})"},
       {"{}", R"({"id": "a"})", R"({"id": 1, "id": 2})"}},
      {R"({"properties": {"never": false, "a": {"const": 1}}})", {"{}", R"({"a": 1})"}, {R"({"never": 1})"}},
  });
}

TEST(JsonSchema, Combinations) {
  check({
      {R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})", {"1", "\"a\""}, {"\"ab\"", "1.5"}},
      {R"({"minimum": 5, "anyOf": [{"type": "integer"}, {"type": "null"}]})", {"5", "null"}, {"4"}},
      {R"({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}], "multipleOf": 2})", {"4"}, {"3", "5", "6"}},
      {R"({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"a": {"minimum": 7}, "b": {"const": 1}}}]})",
       {R"({"a": 7})", R"({"a": 8, "b": 1})"},
       {R"({"a": 6})", R"({"b": 1})"}},
      {R"({"allOf": [{"properties": {"a": true}, "additionalProperties": false}, {"properties": {"b": true}}]})",
       {"{}", R"({"a": 1})"},
       {R"({"b": 1})"}},
      {R"({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}}})",
       {"{}", R"({"next": {"next": {}}})"},
       {R"({"next": 1})"}},
      {R"({"$ref": "#/definitions/a~1b%20c", "definitions": {"a/b c": {"const": true}}})", {"true"}, {"false"}},
      {R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"[1]", "["}},
      {R"({"title": "t", "description": "d", "default": 1, "examples": [2], "$schema": "s", "$id": "i", "$comment": "c", "x-order": 3, "type": "null"})",
       {"null"},
       {"1"}},
  });
}

TEST(JsonSchema, NullableAddsNull) {
  check({
      {R"({"type": "string", "maxLength": 1, "nullable": true})", {"null", "\"a\""}, {"\"ab\"", "1"}},
      {R"({"type": "string", "nullable": false})", {"\"a\""}, {"null"}},
      {R"({"type": ["integer", "boolean"], "nullable": true})", {"null", "1", "true"}, {"\"a\""}},
      {R"({"type": ["integer", "null"], "nullable": true})", {"null", "1"}, {"\"a\""}},
      {R"({"nullable": true, "minLength": 1})", {"null", "\"a\""}, {"\"\"", "1"}},
      {R"({"nullable": true})", {"null", "1", "{}"}, {"x"}},
      {R"({"type": "string", "enum": ["a", "b"], "nullable": true})", {"null", "\"a\""}, {"\"c\""}},
      {R"({"enum": ["a", null], "nullable": true})", {"null", "\"a\""}, {"\"c\""}},
      {R"({"const": 3, "nullable": true})", {"null", "3"}, {"4"}},
      {R"({"properties": {"a": {"type": "integer", "nullable": true}}, "required": ["a"], "nullable": true})",
       {"null", R"({"a": 1})", R"({"a": null})"},
       {"{}", R"({"a": "x"})"}},
      {R"({"allOf": [{"type": "string", "nullable": true}, {"type": "string"}]})", {"\"a\""}, {"null"}},
      {R"({"allOf": [{"type": "string", "nullable": true}, {"maxLength": 1, "nullable": true}]})",
       {"null", "\"a\""},
       {"\"ab\""}},
      {R"({"nullable": true, "allOf": [{"$ref": "#/$defs/n"}], "$defs": {"n": {"type": "integer"}}})",
       {"null", "1"},
       {"\"a\""}},
      {R"({"anyOf": [{"type": "integer", "nullable": true}, {"type": "boolean"}]})", {"null", "1", "true"}, {"\"a\""}},
      {R"({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}}, "nullable": true}}})",
       {"null", R"({"next": {"next": null}})"},
       {R"({"next": 1})"}},
      {R"({"enum": [null, 1, "a"], "allOf": [{"type": "integer", "nullable": true}]})", {"null", "1"}, {"\"a\""}},
      {R"({"type": "string", "enum": ["a", null]})", {"\"a\""}, {"null"}},
      {R"({"propertyNames": {"nullable": true, "maxLength": 1}, "additionalProperties": true})",
       {R"({"a": 1})"},
       {R"({"ab": 1})"}},
  });
}

TEST(JsonSchema, AnnotationsOfOpenApiSayNothing) {
  check({
      {R"({"type": "integer", "example": "x", "xml": {"name": "n"}, "externalDocs": {"url": "u"}})", {"1"}, {"\"x\""}},
      {R"({"oneOf": [{"properties": {"kind": {"const": "a"}}}, {"properties": {"kind": {"const": "b"}}}],
           "discriminator": {"propertyName": "kind", "mapping": {"a": "#/$defs/a"}}})",
       {R"({"kind": "a"})", R"({"kind": "b"})"},
       {R"({"kind": "c"})"}},
      {R"({"type": "string", "format": "binary", "maxLength": 1})", {"\"a\""}, {"\"ab\"", "1"}},
      {R"({"format": "int64"})", {"1", "\"a\"", "null"}, {"x"}},
      {R"({"format": "date"})", {"\"2024-02-28\""}, {"\"a\"", "1"}},
      {R"({"enum": ["a", 1], "format": "color"})", {"\"a\"", "1"}, {"\"b\""}},
  });
}

TEST(JsonSchema, Refusals) {
  const std::vector<std::array<std::string, 3>> cases{
      {"{", "", "no JSON"},
      {"3", "", "a schema is an object"},
      {R"({"properties": {"a/b": {"items": {"not": {}}}}})", "/properties/a~1b/items/not", "not is not supported"},
      {R"({"allOf": [{"if": {}}]})", "/allOf/0/if", "if is not supported"},
      {R"({"type": "text"})", "/type", "a type is one of"},
      {R"({"minLength": -1})", "/minLength", "whole number"},
      {R"({"minLength": 1.5})", "/minLength", "whole number"},
      {R"({"maximum": "3"})", "/maximum", "must be a number"},
      {R"({"type": "integer", "multipleOf": 0.1})", "/multipleOf", "whole numbers"},
      {R"({"type": "integer", "multipleOf": 0})", "/multipleOf", "whole numbers"},
      {R"({"pattern": "("})", "/pattern", "not closed"},
      {R"({"type": "string", "format": 1})", "/format", "must be a string"},
      {R"({"format": 1})", "/format", "must be a string"},
      {R"({"nullable": "yes"})", "/nullable", "true or false"},
      {R"({"nullable": true, "$ref": "#"})", "", "refers to itself"},
      {R"({"uniqueItems": true})", "/uniqueItems", "items differ"},
      {R"({"items": [true]})", "/items", "prefixItems"},
      {R"({"enum": 3})", "/enum", "must be an array"},
      {R"({"properties": []})", "/properties", "must be an object"},
      {R"({"required": [1]})", "/required", "strings"},
      {R"({"$ref": "other.json"})", "/$ref", "same schema"},
      {R"({"$ref": "#/$defs/x"})", "/$ref", "points at nothing"},
      {R"({"$ref": "#"})", "", "refers to itself"},
      {R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", "", "refers to itself"},
  };
  for (const auto& [schema, pointer, message] : cases) {
    const auto grammar = Grammar::from_json_schema(schema);
    ASSERT_FALSE(grammar) << schema;
    EXPECT_EQ(grammar.error().code, base::ErrorCode::kInvalidParams);
    EXPECT_THAT(grammar.error().message, HasSubstr(message)) << schema;
    EXPECT_THAT(grammar.error().message, HasSubstr(pointer)) << schema;
  }
}

TEST(JsonSchema, WhatNothingSatisfiesIsRefused) {
  for (const char* schema : {
           "false",
           R"({"enum": []})",
           R"({"type": "integer", "minimum": 3, "maximum": 2})",
           R"({"type": "string", "const": 1})",
           R"({"type": "number", "exclusiveMinimum": 1, "maximum": 1})",
           R"({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2})",
           R"({"type": "object", "required": ["a"], "additionalProperties": false})",
           R"({"type": "string", "pattern": "^ab$", "maxLength": 1})",
           R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
           R"({"type": "array", "minItems": 1, "items": false})",
           R"({"allOf": [{"type": "string"}, {"type": "null"}]})",
           R"({"type": "object", "minProperties": 2, "properties": {"a": true}})",
       }) {
    const auto grammar = Grammar::from_json_schema(schema);
    ASSERT_FALSE(grammar) << schema;
    EXPECT_THAT(grammar.error().message, HasSubstr("no output at all")) << schema;
  }
}

TEST(JsonSchema, HostileSchemasCostLittle) {
  std::string deep;
  for (int i = 0; i < 300; ++i) deep += R"({"items":)";
  EXPECT_FALSE(Grammar::from_json_schema(deep + "{}" + std::string(300, '}')));

  std::string branches = R"({"allOf": [)";
  for (int i = 0; i < 20; ++i) branches += R"({"anyOf": [{"minimum": 1}, {"maximum": 9}, {"title": "x"}]},)";
  EXPECT_FALSE(Grammar::from_json_schema(branches + "{}]}"));

  EXPECT_FALSE(Grammar::from_json_schema(R"({"type": "string", "pattern": "^[ab]*a[ab]{50}$", "maxLength": 900})"));
  EXPECT_TRUE(Grammar::from_json_schema(R"({"type": "string", "maxLength": 1000000000})"));
  EXPECT_TRUE(Grammar::from_json_schema(R"({"type": "string", "pattern": "^[a-z]{1,1000000}$"})"));
  EXPECT_TRUE(Grammar::from_json_schema(R"({"type": "array", "minItems": 1000000, "maxItems": 1000000})"));

  // 2^40 paths through references, 40 rules.
  std::string chain = R"({"$ref": "#/$defs/d0", "$defs": {)";
  for (int i = 0; i < 40; ++i) {
    const std::string next = "{\"$ref\": \"#/$defs/d" + std::to_string(i + 1) + "\"}";
    chain += "\"d" + std::to_string(i) + R"(": {"type": "object", "properties": {"l": )" + next + R"(, "r": )" + next +
             "}},";
  }
  EXPECT_TRUE(Grammar::from_json_schema(chain + R"("d40": {"type": "null"}}})"));
}

std::string numbers_to(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += (i > 0 ? "," : "") + std::to_string(i);
  return out;
}

std::string repeated(std::string_view part, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += (i > 0 ? "," : "") + std::string(part);
  return out;
}

// Each is taken within some ten steps per keyword and value: what is read or judged again would not fit.
TEST(JsonSchema, StepsAreLinear) {
  const auto compile = [](std::string_view schema, std::size_t steps) {
    return Grammar::from_json_schema(schema, {.schema_steps_max = steps});
  };
  // 3^30 paths to one schema.
  std::string paths = R"({"const": 1, "allOf": [)" + repeated(R"({"$ref": "#/$defs/a0"})", 3) + R"(], "$defs": {)";
  for (int i = 0; i < 29; ++i) {
    paths += "\"a" + std::to_string(i) + R"(": {"allOf": [)" +
             repeated(R"({"$ref": "#/$defs/a)" + std::to_string(i + 1) + "\"}", 3) + "]},";
  }
  EXPECT_TRUE(compile(paths + R"("a29": {}}})", 20'000));
  // An enum beside an enum.
  const std::string numbers = numbers_to(5000);
  const std::string both =
      R"({"enum": [)" + numbers + R"(], "allOf": [{"enum": [)" + numbers + R"(]}, {"minimum": 7}]})";
  EXPECT_TRUE(compile(both, 300'000));
  EXPECT_TRUE(accepts(both, "4999"));
  EXPECT_FALSE(accepts(both, "5000"));
  EXPECT_FALSE(accepts(both, "6"));
  // An automaton of 2,048 states beside 2,000 values.
  std::string words;
  for (int i = 0; i < 2000; ++i) words += (i > 0 ? ",\"aaaaaaaaaaa" : "\"aaaaaaaaaaa") + std::to_string(i) + '"';
  EXPECT_TRUE(compile(R"({"pattern": "^[ab]*a[ab]{10}", "enum": [)" + words + "]}", 300'000));
  // And beside 500 members.
  std::string members;
  for (int i = 0; i < 500; ++i) members += (i > 0 ? ",\"m" : "\"m") + std::to_string(i) + R"(": {"type": "null"})";
  EXPECT_TRUE(compile(R"({"patternProperties": {"^[ab]*a[ab]{5}$": {}}, "properties": {)" + members + "}}", 100'000));
  EXPECT_TRUE(compile(R"({"uniqueItems": true, "const": [)" + numbers + "]}", 60'000));
}

TEST(JsonSchema, EqualValuesOfAnEnumAreOne) {
  check({
      {R"({"enum": [1.0, [1, {"a": 2, "b": [true]}], true, "1"], "allOf": [{"enum": [1, [1.0, {"b": [true], "a": 2.0}]]}]})",
       {"1", R"([1, {"a": 2, "b": [true]}])"},
       {"true", "\"1\""}},
      {R"({"enum": [[1, 1.0], [1, true], [[1], ["1"]], [{"a": 1}, {"a": 1.0}]], "allOf": [{"uniqueItems": true}]})",
       {"[1, true]", R"([[1], ["1"]])"},
       {"[1, 1]", R"([{"a": 1}, {"a": 1}])"}},
  });
}

TEST(JsonSchema, CombinationsThatCostTooMuchAreRefused) {
  std::string properties;
  for (int i = 0; i < 400; ++i) properties += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + "\":true";
  const std::string branches = R"({"anyOf":[)" + repeated(R"({"title":"x"})", 31) + "]}";
  for (const std::string& schema : {
           // values and conditions
           R"({"enum":[)" + numbers_to(1000) + R"(],"allOf":[)" + repeated(R"({"minimum":1})", 20) + "]}",
           // 961 combinations of branches beside 1,000 schemas
           R"({"allOf":[)" + repeated("{}", 1000) + "," + branches + "," + branches + "]}",
           // members and schemas
           R"({"properties":{)" + properties + R"(},"allOf":[)" + repeated("{}", 300) + "]}",
           // items and schemas
           R"({"prefixItems":[)" + repeated(R"({"type":"null"})", 400) + R"(],"allOf":[)" + repeated("{}", 300) + "]}",
       }) {
    const auto grammar = Grammar::from_json_schema(schema, {.schema_steps_max = 100'000});
    ASSERT_FALSE(grammar) << schema.substr(0, 60);
    EXPECT_EQ(grammar.error().code, base::ErrorCode::kInvalidParams);
    EXPECT_THAT(grammar.error().message, HasSubstr("more than 100000 steps")) << schema.substr(0, 60);
  }
  const auto by_default =
      Grammar::from_json_schema(R"({"allOf":[)" + repeated("{}", 100'000) + "," + branches + "," + branches + "]}");
  ASSERT_FALSE(by_default);
  EXPECT_THAT(by_default.error().message, HasSubstr("more than 8388608 steps"));
  // All schemas of a text have one budget.
  const std::string one = R"({"enum": [)" + numbers_to(100) + "]}";
  const Limits limits{.schema_steps_max = 2000};
  EXPECT_TRUE(Grammar::from_gbnf("root ::= %json " + one, limits));
  const auto two = Grammar::from_gbnf("root ::= %json " + one + " %json " + one, limits);
  ASSERT_FALSE(two);
  EXPECT_THAT(two.error().message, HasSubstr("more than 2000 steps"));
}

std::string properties_of(int count, const std::function<std::string(int)>& schema_of) {
  std::string out;
  for (int i = 0; i < count; ++i) out += (i > 0 ? ",\"a" : "\"a") + std::to_string(i) + "\":" + schema_of(i);
  return R"({"type":"object","properties":{)" + out + "}}";
}

// Of the process so far.
long peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// A name is written for each number of members that may stand before it.
TEST(JsonSchema, ALongNameIsNotWrittenTimeAndAgainBeforeItIsRefused) {
  std::string members = '"' + std::string(100'000, 'a') + R"(":{})";
  for (int i = 0; i < 125; ++i) members += fmt::format(R"(,"a{}":{{}})", i);
  const auto before = peak_kib();
  const auto refused =
      Grammar::from_json_schema(R"({"type":"object","maxProperties":127,"properties":{)" + members + "}}");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("their names are too long together"));
  EXPECT_LT(peak_kib() - before, 600 * 1024) << "of 127 copies it would be twice as much and more";
}

// A class that is spelled once takes fifty thousand states; at each length that a text may have it is spelled again.
TEST(JsonSchema, AClassOfManyRangesIsNotSpelledAtEachLengthBeforeItIsRefused) {
  std::string ranges;
  for (int i = 0; i < 8191; ++i)
    ranges += fmt::format(R"(\\u{{{:x}}}-\\u{{{:x}}})", 0x10000 + 0x60 * i, 0x10042 + 0x60 * i);
  const auto text_of = [&](int length_max) {
    return fmt::format(R"({{"type":"string","pattern":"^[{}]*$","maxLength":{}}})", ranges, length_max);
  };
  EXPECT_TRUE(Grammar::from_json_schema(text_of(2)));
  for (const std::string& schema :
       {text_of(300), R"({"type":"array","minItems":1000,"items":)" + text_of(300) + "}",
        R"({"type":"object","propertyNames":)" + text_of(100) + R"(,"additionalProperties":{}})"}) {
    const auto before = peak_kib();
    const auto refused = Grammar::from_json_schema(schema);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message, "the grammar is too large; make it smaller");
    EXPECT_LT(peak_kib() - before, 900 * 1024) << "of all lengths it would be more";
  }
  for (const std::string& schema : {text_of(15'000), R"({"patternProperties":{"^[)" + ranges + "]{1,15000}$\":{}}}"}) {
    const auto before = peak_kib();
    const auto refused = Grammar::from_json_schema(schema);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("more than 8388608 steps"));
    EXPECT_LT(peak_kib() - before, 900 * 1024);
  }
}

// What is left of such automata is nothing or little, and the way there has thousands of states.
TEST(JsonSchema, TheWayToSmallAutomataIsCounted) {
  const auto no_multiple = [](int i) {
    return R"({"type":"integer","multipleOf":1009,"minimum":)" + std::to_string(i * 1009 + 1) + R"(,"maximum":)" +
           std::to_string(i * 1009 + 1008) + "}";
  };
  const auto both_patterns = [](int i) {
    return R"({"type":"string","allOf":[{"pattern":"^(a{97})*c$"},{"pattern":"^(a{101})*b{)" + std::to_string(i + 1) +
           R"(}$"}]})";
  };
  const auto both_names = [](int) {
    return std::string(R"({"type":"object","allOf":[{"propertyNames":{"pattern":"^(a{97})*c$"}},)"
                       R"({"propertyNames":{"pattern":"^(a{101})*b$"}}]})");
  };
  const auto either_name = [](int) {
    return std::string(R"({"type":"object","propertyNames":{"anyOf":[{"pattern":"^(a{97})*c$"},)"
                       R"({"pattern":"^(a{101})*b$"}],"maxLength":1}})");
  };
  const auto other_names = [](int) {
    return std::string(R"({"type":"object","propertyNames":{"pattern":"^(a{97})*c$"},)"
                       R"("patternProperties":{"^(a{101})*b$":true},"additionalProperties":false})");
  };
  constexpr std::size_t kSteps = 400'000;
  for (const std::function<std::string(int)>& schema_of :
       std::vector<std::function<std::string(int)>>{no_multiple, both_patterns, both_names, other_names}) {
    EXPECT_TRUE(Grammar::from_json_schema(properties_of(1, schema_of))) << schema_of(0);
    const auto few = Grammar::from_json_schema(properties_of(20, schema_of), {.schema_steps_max = kSteps});
    ASSERT_FALSE(few) << schema_of(0);
    EXPECT_THAT(few.error().message, HasSubstr("more than 400000 steps")) << schema_of(0);
  }
  const auto many = Grammar::from_json_schema(properties_of(8000, no_multiple));
  ASSERT_FALSE(many);
  EXPECT_THAT(many.error().message, HasSubstr("more than 8388608 steps"));
  EXPECT_TRUE(Grammar::from_json_schema(properties_of(1, either_name)));
  // A class that a repetition writes out time and again.
  std::string many_characters;
  for (int i = 0; i < 2000; ++i) many_characters += fmt::format("\\u{:04x}", 0x4E00 + 2 * i);
  const auto written_out =
      Grammar::from_json_schema(R"({"pattern":"^[)" + many_characters + R"(]{10000}$","maxLength":9})");
  ASSERT_FALSE(written_out);
  EXPECT_THAT(written_out.error().message, HasSubstr("more than 8388608 steps"));
}

// One that is written often is made once, and bounds that exclude each other make none.
TEST(JsonSchema, WhatHasEqualConditionsIsMadeOnce) {
  const Limits limits{.schema_steps_max = 100'000};
  for (const char* schema :
       {R"({"type":"integer"})", R"({"type":"number"})", R"({"type":"number","minimum":0,"maximum":1})",
        R"({"type":"integer","multipleOf":1009,"minimum":2,"maximum":1})",
        R"({"type":"string","allOf":[{"pattern":"^(a{97})*c$"},{"pattern":"^(a{101})*b$"}]})"}) {
    EXPECT_TRUE(Grammar::from_json_schema(properties_of(200, [&](int) { return schema; }), limits)) << schema;
  }
  const auto ranges = [](int i) { return R"({"type":"number","minimum":0,"maximum":)" + std::to_string(i) + "}"; };
  EXPECT_TRUE(Grammar::from_json_schema(properties_of(500, ranges)));
}

// The states of what is left are no steps again, but where they are spelled in bytes.
TEST(JsonSchema, NumbersAndJoinedPatternsCountOnce) {
  // 116,961 steps, and 97 states or more.
  EXPECT_TRUE(
      Grammar::from_json_schema(R"({"type":"integer","multipleOf":97,"minimum":1})", {.schema_steps_max = 118'000}));
  // 24,621 steps, and 126 states of what is joined again.
  const std::string joined = R"({"type":"string","allOf":[{"pattern":"^(a{3})*b?$"},{"pattern":"^(a{5})*b?$"},)"
                             R"({"pattern":"^(a{7})*b?$"},{"pattern":"^(a{11})*b?$"}]})";
  EXPECT_TRUE(Grammar::from_json_schema(joined, {.schema_steps_max = 25'500}));
}

// Against doubles: every literal of up to two digits on either side of the point, and signs.
TEST(JsonSchemaNumbers, BoundsAgreeWithArithmetic) {
  std::vector<std::string> literals;
  for (int whole = 0; whole < 25; ++whole) {
    literals.push_back(std::to_string(whole));
    for (int part = 0; part < 100; part += 7) {
      literals.push_back(std::to_string(whole) + "." + std::to_string(part / 10) +
                         (part % 10 ? std::to_string(part % 10) : ""));
    }
  }
  std::mt19937 random(7);
  for (int round = 0; round < 150; ++round) {
    json_schema::NumberConditions conditions;
    const auto bound = [&] {
      const double value = std::round((static_cast<double>(random() % 5000) / 100 - 25) * 100) / 100;
      const bool whole = random() % 3 == 0;
      return std::pair(json_schema::to_decimal(boost::json::value(whole ? std::floor(value) : value)),
                       whole ? std::floor(value) : value);
    };
    const auto [low, low_value] = bound();
    const auto [high, high_value] = bound();
    const bool has_low = random() % 4 != 0, has_high = !has_low || random() % 4 != 0;
    const bool low_open = random() % 2 == 0, high_open = random() % 2 == 0;
    if (has_low) conditions.min = {low, low_open};
    if (has_high) conditions.max = {high, high_open};
    const auto integers = *json_schema::integers(conditions, 20000), numbers = *json_schema::numbers(conditions, 20000);
    for (const std::string& literal : literals) {
      for (const char* sign : {"", "-"}) {
        const std::string text = sign + literal;
        const double value = std::strtod(text.c_str(), nullptr);
        if (value == 0 && *sign != '\0') continue;
        const bool in = (!has_low || (low_open ? value > low_value : value >= low_value)) &&
                        (!has_high || (high_open ? value < high_value : value <= high_value));
        const auto word = ir::code_points(text);
        ASSERT_EQ(numbers.contains(word), in) << text << " " << low_value << " " << high_value << low_open << high_open;
        ASSERT_EQ(integers.contains(word), in && text.find('.') == std::string::npos) << text;
      }
    }
  }
}

TEST(JsonSchemaNumbers, DecimalsOfDoubles) {
  const auto text = [](std::string_view json) {
    return json_schema::to_string(json_schema::to_decimal(boost::json::parse(json)));
  };
  EXPECT_EQ(text("0.1"), "0.1");
  EXPECT_EQ(text("-0.0"), "0");
  EXPECT_EQ(text("1e3"), "1000");
  EXPECT_EQ(text("2.5e-3"), "0.0025");
  EXPECT_EQ(text("18446744073709551615"), "18446744073709551615");
  EXPECT_EQ(text("-9223372036854775808"), "-9223372036854775808");
  EXPECT_EQ(text("519.323"), "519.323");
}

}  // namespace
}  // namespace llorch::grammar
