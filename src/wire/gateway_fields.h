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

template <auto kNeutral>
struct Codec<Only<kNeutral>> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys, Only<kNeutral>&) {
    if (v.is_null() || is_neutral(v)) return {};
    return field_error(path, "unsupported",
                       fmt::format("{} is not supported by this server but as {}, which asks for nothing; leave it out",
                                   path, kNeutral));
  }
  static void write(std::string& out, const Only<kNeutral>&) { out += "null"; }
  static bj::object schema(const Bounds&) { return {{"const", kNeutral}}; }

 private:
  static bool is_neutral(const bj::value& v) {
    if constexpr (!std::is_same_v<decltype(kNeutral), bool>) {
      if (const double* real = v.if_double()) return *real == static_cast<double>(kNeutral);
    }
    return v == bj::value(kNeutral);
  }
};
template <auto kNeutral>
bool is_absent(const Only<kNeutral>&) {
  return true;
}

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

// `v` without those of the fields that are null; absent: there are none.
inline std::optional<bj::value> without_nulls(std::span<const Field> fields, const bj::value& v) {
  if (!v.is_object()) return std::nullopt;
  const auto is_left_out = [&](const bj::key_value_pair& member) {
    return member.value().is_null() && has_field(fields, std::string_view(member.key()));
  };
  if (!std::ranges::any_of(v.get_object(), is_left_out)) return std::nullopt;
  bj::object given;
  for (const bj::key_value_pair& member : v.get_object()) {
    if (!is_left_out(member)) given.emplace(member.key(), member.value());
  }
  return given;
}

// A request where null is left out, also of the fields that have a value of their own then.
template <class S>
struct NullableCodec {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys unknown, S& out) {
    const std::optional<bj::value> given = without_nulls(fields(), v);
    TRY(read_object(fields(), given ? *given : v, path, unknown, &out));
    if constexpr (HasValidate<S>) TRY(Table<S>::validate(out));
    return {};
  }
  static void write(std::string& out, const S& v) { write_object(fields(), out, &v); }
  static bj::object schema(const Bounds&) {
    const S defaults{};
    return object_schema(fields(), &defaults);
  }

 private:
  static const Fields& fields() {
    static const Fields list = Table<S>::fields();
    return list;
  }
};

// The fields but those of whose names `left_out` is true.
template <class LeftOut>
Fields fields_without(Fields fields, LeftOut left_out) {
  std::erase_if(fields, [&](const Field& field) { return left_out(field.name); });
  return fields;
}

}  // namespace llorch::wire
