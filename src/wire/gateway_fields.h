#pragma once
// Codecs of gateway.h, and tables made of others. Included only by the .cpp files of this directory.
#include "wire/field.h"
#include "wire/gateway.h"
#include "wire/json_text_fields.h"

namespace llorch::wire {

template <>
struct Codec<Ignored> {
  static base::Result<> read(const bj::value&, const Path&, const Bounds&, UnknownKeys, Ignored&) { return {}; }
  static void write(std::string& out, const Ignored&) { out += "null"; }
  static bj::object schema(const Bounds&) { return {}; }
};
inline bool is_absent(const Ignored&) { return true; }

template <>
struct Codec<Unsupported> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys, Unsupported&) {
    if (v.is_null()) return {};
    return field_error(path, "unsupported", fmt::format("{} is not supported by this server; leave it out", path));
  }
  static void write(std::string& out, const Unsupported&) { out += "null"; }
  static bj::object schema(const Bounds&) { return {{"type", "null"}}; }
};
inline bool is_absent(const Unsupported&) { return true; }

template <>
struct Codec<StopTexts> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                             StopTexts& out) {
    if (!v.is_string()) return Codec<std::vector<std::string>>::read(v, path, b, unknown, out.texts);
    out.texts.resize(1);
    return Codec<std::string>::read(v, path, {}, unknown, out.texts.front());
  }
  static void write(std::string& out, const StopTexts& v) { Codec<std::vector<std::string>>::write(out, v.texts); }
  static bj::object schema(const Bounds& b) {
    bj::object many = Codec<std::vector<std::string>>::schema(b);
    return {{"anyOf", bj::array{Codec<std::string>::schema({}), std::move(many)}}};
  }
};

// Bounds count the bytes of the JSON text.
template <>
struct Codec<TextOrList> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys, TextOrList& out) {
    if (!v.is_string() && !v.is_array()) {
      return field_error(path, "type", fmt::format("{} must be a text or a list", path));
    }
    if (holds_nul(v)) return field_error(path, "nul", fmt::format("{} holds a NUL byte", path));
    out.json = bj::serialize(v);
    if (static_cast<double>(out.json.size()) <= b.max) return {};
    return field_error(path, "length",
                       fmt::format("{} has {} bytes of JSON; allowed are {}", path, out.json.size(), b.max));
  }
  static void write(std::string& out, const TextOrList& v) { out += v.json; }
  static bj::object schema(const Bounds&) { return {{"type", bj::array{"string", "array"}}}; }
};

inline bool has_field(std::span<const Field> fields, std::string_view name) {
  return std::ranges::find(fields, name, &Field::name) != fields.end();
}
// The fields but those of whose names `left_out` is true.
template <class LeftOut>
Fields fields_without(Fields fields, LeftOut left_out) {
  std::erase_if(fields, [&](const Field& field) { return left_out(field.name); });
  return fields;
}

}  // namespace llorch::wire
