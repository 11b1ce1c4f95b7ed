#include "grammar/json_schema/document.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <boost/json/parse.hpp>

#include "base/parse_json.h"
#include "base/utf8.h"

namespace llorch::grammar::json_schema {
namespace {

using base::ErrorCode;
using base::fail;
namespace json = boost::json;

constexpr auto kKeywords = std::to_array<std::string_view>({
    "$ref",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "nullable",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "type",
    "uniqueItems",
});

// They say nothing about which values are valid. OpenAPI's are among them: discriminator, example, externalDocs, xml.
constexpr auto kAnnotations = std::to_array<std::string_view>({
    "$comment",         "$defs",         "$id",       "$schema",     "contentEncoding",
    "contentMediaType", "contentSchema", "default",   "definitions", "deprecated",
    "description",      "discriminator", "example",   "examples",    "externalDocs",
    "readOnly",         "title",         "writeOnly", "xml",
});

std::string escaped(std::string_view step) {
  std::string out;
  for (const char c : step) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

bool find_path(const json::value& from, Node node, std::string& path) {
  if (&from == node) return true;
  const std::size_t size = path.size();
  if (const json::object* object = from.if_object()) {
    for (const auto& member : *object) {
      path += '/' + escaped(member.key());
      if (find_path(member.value(), node, path)) return true;
      path.resize(size);
    }
  } else if (const json::array* array = from.if_array()) {
    for (std::size_t i = 0; i < array->size(); ++i) {
      path += fmt::format("/{}", i);
      if (find_path((*array)[i], node, path)) return true;
      path.resize(size);
    }
  }
  return false;
}

// One step of a JSON pointer in a URI fragment: %HH, then ~1 and ~0.
std::optional<std::string> unescaped(std::string_view step) {
  std::string bytes;
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (step[i] != '%') {
      bytes += step[i];
      continue;
    }
    const auto digit = [&](std::size_t at) -> int {
      if (at >= step.size()) return -1;
      const char c = step[at];
      if (c >= '0' && c <= '9') return c - '0';
      return (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
    };
    const int high = digit(i + 1), low = digit(i + 2);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(high * 16 + low);
    i += 2;
  }
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '~') {
      out += bytes[i];
    } else if (i + 1 < bytes.size() && (bytes[i + 1] == '0' || bytes[i + 1] == '1')) {
      out += bytes[++i] == '0' ? '~' : '/';
    } else {
      return std::nullopt;
    }
  }
  return out;
}

Node child(Node node, const std::string& step) {
  if (const json::object* object = node->if_object()) return object->if_contains(step);
  const json::array* array = node->if_array();
  const bool is_index = !step.empty() && step.size() < 8 && (step == "0" || step[0] != '0') &&
                        std::all_of(step.begin(), step.end(), [](char c) { return c >= '0' && c <= '9'; });
  return array && is_index ? array->if_contains(std::stoul(step)) : nullptr;
}

}  // namespace

base::Result<Document> Document::parse(std::string_view text, const Limits& limits) {
  if (text.size() > limits.text_bytes_max) {
    return fail(ErrorCode::kInvalidParams,
                fmt::format("the JSON schema has more than {} bytes", limits.text_bytes_max));
  }
  json::parse_options options;
  options.max_depth = 4 * limits.depth_max;  // a sub-schema is two to four levels of JSON below its parent
  boost::system::error_code error;
  Document out;
  out.root_ = base::parse_json(text, error, {}, options);
  if (error) return fail(ErrorCode::kInvalidParams, fmt::format("the JSON schema is no JSON: {}", error.message()));
  return out;
}

std::string Document::pointer_of(Node node) const {
  std::string path;
  find_path(root_, node, path);
  return path;
}

tl::unexpected<base::Error> Document::failure(Node schema, std::string_view keyword, std::string_view what) const {
  std::string pointer = pointer_of(schema);
  if (!keyword.empty()) pointer += '/' + escaped(keyword);
  return fail(base::Error{
      ErrorCode::kInvalidParams, fmt::format("JSON schema, {}: {}", pointer.empty() ? "root" : pointer, what), {}}
                  .with("pointer", pointer)
                  .with("keyword", std::string(keyword)));
}

base::Result<Node> Document::resolve(Node schema, std::string_view reference) const {
  if (!reference.starts_with('#') || (reference.size() > 1 && reference[1] != '/')) {
    return failure(schema, "$ref", "only references into the same schema are supported: # or #/a/json/pointer");
  }
  Node node = &root_;
  std::string_view rest = reference.substr(1);
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const auto step = unescaped(rest.substr(0, end));
    node = step ? child(node, *step) : nullptr;
    if (!node) return failure(schema, "$ref", "it points at nothing in the schema");
    rest.remove_prefix(end);
  }
  return node;
}

base::Result<std::optional<std::uint32_t>> Document::count(Node schema, std::string_view keyword) const {
  constexpr double kMax = 1u << 30;
  const json::value* value = schema->get_object().if_contains(keyword);
  if (!value) return std::nullopt;
  const double number = value->is_number() ? value->to_number<double>() : -1;
  if (!(number >= 0 && number <= kMax && std::floor(number) == number)) {
    return failure(schema, keyword, fmt::format("it must be a whole number from 0 to {}", kMax));
  }
  return static_cast<std::uint32_t>(number);
}

base::Result<std::optional<Decimal>> Document::number(Node schema, std::string_view keyword) const {
  const json::value* value = schema->get_object().if_contains(keyword);
  if (!value) return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->to_number<double>())) {
    return failure(schema, keyword, "it must be a number");
  }
  return to_decimal(*value);
}

base::Result<bool> Document::flag(Node schema, std::string_view keyword) const {
  const json::value* value = schema->get_object().if_contains(keyword);
  if (!value) return false;
  if (!value->is_bool()) return failure(schema, keyword, "it must be true or false");
  return value->get_bool();
}

base::Result<std::optional<std::string_view>> Document::string(Node schema, std::string_view keyword) const {
  const json::value* value = schema->get_object().if_contains(keyword);
  if (!value) return std::nullopt;
  if (!value->is_string()) return failure(schema, keyword, "it must be a string");
  return std::string_view(value->get_string());
}

base::Result<const json::object*> Document::object(Node schema, std::string_view keyword) const {
  const json::value* value = schema->get_object().if_contains(keyword);
  if (!value) return nullptr;
  if (!value->is_object()) return failure(schema, keyword, "it must be an object");
  return &value->get_object();
}

base::Result<const json::array*> Document::array(Node schema, std::string_view keyword) const {
  const json::value* value = schema->get_object().if_contains(keyword);
  if (!value) return nullptr;
  if (!value->is_array()) return failure(schema, keyword, "it must be an array");
  return &value->get_array();
}

base::Result<> Document::check(Node schema) const {
  if (schema->is_bool()) return {};
  const json::object* object = schema->if_object();
  if (!object) return failure(schema, "", "a schema is an object, true or false");
  for (const auto& member : *object) {
    const std::string_view name = member.key();
    if (std::binary_search(kKeywords.begin(), kKeywords.end(), name)) continue;
    if (std::binary_search(kAnnotations.begin(), kAnnotations.end(), name) || name.starts_with("x-")) continue;
    return failure(schema, name, fmt::format("the keyword {} is not supported", name));
  }
  return {};
}

}  // namespace llorch::grammar::json_schema
