#pragma once
// Codecs of JSON that is handed on as text. Included only by the .cpp files of this directory.
#include "wire/field.h"
#include "wire/task.h"

namespace llorch::wire {

inline bool holds_nul(const bj::value& value) {
  const auto in_text = [](std::string_view text) { return text.find('\0') != std::string_view::npos; };
  if (value.is_string()) return in_text(value.get_string());
  if (value.is_array()) return std::ranges::any_of(value.get_array(), holds_nul);
  if (!value.is_object()) return false;
  return std::ranges::any_of(value.get_object(),
                             [&](const auto& m) { return in_text(m.key()) || holds_nul(m.value()); });
}

// Bounds count the bytes of the JSON text.
template <class T>
struct JsonTextCodec {
  static constexpr bool kArray = std::is_same_v<T, JsonArray>;

  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown, T& out) {
    if (kArray ? !v.is_array() : !v.is_object())
      return field_error(path, "type", fmt::format("{} must be {}", path, kArray ? "an array" : "an object"));
    out.text = bj::serialize(v);
    if (static_cast<double>(out.text.size()) > b.max)
      return field_error(path, "length",
                         fmt::format("{} has {} bytes of JSON; allowed are {}", path, out.text.size(), b.max));
    if (unknown == UnknownKeys::kRefuse && holds_nul(v))
      return field_error(path, "nul", fmt::format("{} holds a NUL byte", path));
    return {};
  }
  static void write(std::string& out, const T& v) { out += v.text; }
  static bj::object schema(const Bounds&) { return {{"type", kArray ? "array" : "object"}}; }
};

template <>
struct Codec<JsonArray> : JsonTextCodec<JsonArray> {};
template <>
struct Codec<JsonObject> : JsonTextCodec<JsonObject> {};

}  // namespace llorch::wire
