#pragma once
// Codecs of gateway.h, and tables made of others. Included only by the .cpp files of this directory.
#include <utility>

#include "wire/field.h"
#include "wire/gateway.h"
#include "wire/json_text_fields.h"

namespace llorch::wire {

template <>
struct Codec<Ignored> {
  static base::Result<Ignored> read(const bj::value&, const Path&, const Bounds&, UnknownKeys) { return Ignored{}; }
  static void write(std::string& out, const Ignored&) { out += "null"; }
  static bj::object schema(const Bounds&) { return {}; }
};
inline bool is_absent(const Ignored&) { return true; }

template <>
struct Codec<Unsupported> {
  static base::Result<Unsupported> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys) {
    if (v.is_null()) return Unsupported{};
    return field_error(path, "unsupported", fmt::format("{} is not supported by this server; leave it out", path));
  }
  static void write(std::string& out, const Unsupported&) { out += "null"; }
  static bj::object schema(const Bounds&) { return {{"type", "null"}}; }
};
inline bool is_absent(const Unsupported&) { return true; }

template <>
struct Codec<StopTexts> {
  static base::Result<StopTexts> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown) {
    if (!v.is_string()) return StopTexts{TRY(Codec<std::vector<std::string>>::read(v, path, b, unknown))};
    StopTexts out;
    out.texts.push_back(TRY(Codec<std::string>::read(v, path, {}, unknown)));
    return out;
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
  static base::Result<TextOrList> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys) {
    if (!v.is_string() && !v.is_array()) {
      return field_error(path, "type", fmt::format("{} must be a text or a list", path));
    }
    if (holds_nul(v)) return field_error(path, "nul", fmt::format("{} holds a NUL byte", path));
    TextOrList out{bj::serialize(v)};
    if (static_cast<double>(out.json.size()) <= b.max) return out;
    return field_error(path, "length",
                       fmt::format("{} has {} bytes of JSON; allowed are {}", path, out.json.size(), b.max));
  }
  static void write(std::string& out, const TextOrList& v) { out += v.json; }
  static bj::object schema(const Bounds&) { return {{"type", bj::array{"string", "array"}}}; }
};

template <class Fields>
constexpr bool has_field(const Fields& fields, std::string_view name) {
  return std::apply([&](const auto&... field) { return (... || (field.name == name)); }, fields);
}

template <const auto& fields, class LeavesOut, std::size_t index>
constexpr auto field_unless_left_out() {
  constexpr auto field = std::get<index>(fields);
  if constexpr (LeavesOut{}(field.name)) {
    return std::tuple{};
  } else {
    return std::tuple{field};
  }
}
// The fields but those of whose names LeavesOut is true.
template <const auto& fields, class LeavesOut>
constexpr auto fields_without() {
  return []<std::size_t... index>(std::index_sequence<index...>) {
    return std::tuple_cat(field_unless_left_out<fields, LeavesOut, index>()...);
  }
  (std::make_index_sequence<std::tuple_size_v<std::remove_cvref_t<decltype(fields)>>>());
}

}  // namespace llorch::wire
