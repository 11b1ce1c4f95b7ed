#pragma once
// The machinery behind json.h: a field table per type, read by the decoder, the encoder and the schema writer.
// Included only by the .cpp files of this directory and of config.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/json.hpp>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "base/assert.h"
#include "base/json_text.h"
#include "wire/json.h"

namespace llorch::wire {

namespace bj = boost::json;

enum class Need { kRequired, kOptional };

// Numbers: inclusive range. Strings and arrays: length in bytes or elements.
struct Bounds {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

using Details = std::vector<std::pair<std::string, base::DetailValue>>;

// Where in a message a value stands; written out for errors only.
struct Path {
  const Path* parent = nullptr;  // null: the message itself, which has no name
  std::string_view name{};
  std::optional<std::size_t> index{};  // instead of a name

  Path member(std::string_view member_name) const { return {.parent = this, .name = member_name}; }
  Path element(std::size_t element_index) const { return {.parent = this, .index = element_index}; }
  std::string text() const {
    if (parent == nullptr) return {};
    const std::string outer = parent->text();
    if (index) return fmt::format("{}[{}]", outer, *index);
    return outer.empty() ? std::string(name) : fmt::format("{}.{}", outer, name);
  }
};

}  // namespace llorch::wire

template <>
struct fmt::formatter<llorch::wire::Path> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(const llorch::wire::Path& path, Context& context) const {
    return std::ranges::copy(path.text(), context.out()).out;
  }
};

namespace llorch::wire {

inline tl::unexpected<base::Error> field_error(std::string_view path, std::string_view reason, std::string message) {
  return base::fail(base::Error{base::ErrorCode::kInvalidParams, std::move(message), {}}
                        .with("field", std::string(path))
                        .with("reason", std::string(reason)));
}
inline tl::unexpected<base::Error> field_error(const Path& path, std::string_view reason, std::string message) {
  return field_error(path.text(), reason, std::move(message));
}

// read() takes a JSON value apart into what may hold a default; write() appends its JSON; schema() describes it.
template <class T>
struct Codec;

// Specialise with: static Fields fields() { return {...}; }, called once, and optionally
// static base::Result<> validate(const T&) for rules across fields.
template <class T>
struct Table;
// Specialise with: static constexpr auto names = std::array{std::pair{E::kA, std::string_view("a")}, ...};
template <class E>
struct EnumNames;

template <class T>
concept HasTable = requires {
  Table<T>::fields();
};
template <class T>
concept HasValidate = requires(const T& t) {
  Table<T>::validate(t);
};

template <class T>
bool is_absent(const T&) {
  return false;
}
template <class T>
bool is_absent(const std::optional<T>& v) {
  return !v.has_value();
}
inline bool is_absent(const Details& v) { return v.empty(); }

// What the machinery does with a member of any type. One for each type of member, however many members have it.
struct ValueCodec {
  base::Result<> (*read)(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown, void* out);
  void (*write)(std::string& out, const void* value);
  bool (*absent)(const void* value);
  bj::object (*schema)(const Bounds& b);
  bool is_object;  // has a table of its own
};
template <class M>
inline constexpr ValueCodec kValueCodec{
    .read = [](const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
               void* out) { return Codec<M>::read(v, path, b, unknown, *static_cast<M*>(out)); },
    .write = [](std::string& out, const void* value) { Codec<M>::write(out, *static_cast<const M*>(value)); },
    .absent = [](const void* value) { return is_absent(*static_cast<const M*>(value)); },
    .schema = [](const Bounds& b) { return Codec<M>::schema(b); },
    .is_object = HasTable<M>,
};

// One member of a struct, without the types of either, so that what reads, writes and describes objects is compiled once.
struct Field {
  std::string_view name;
  std::size_t offset;  // of the member, in bytes from the struct's begin
  const ValueCodec* codec;
  Need need;
  std::string_view doc;
  Bounds bounds;
};
using Fields = std::vector<Field>;

// In the C++ ABI of Linux a pointer to a data member is this number.
template <class S, class M>
std::size_t offset_of(M S::*member) {
  return static_cast<std::size_t>(std::bit_cast<std::ptrdiff_t>(member));
}
template <class S, class M>
Field required(std::string_view name, M S::*member, std::string_view doc = "", Bounds bounds = {}) {
  return {name, offset_of(member), &kValueCodec<M>, Need::kRequired, doc, bounds};
}
template <class S, class M>
Field optional(std::string_view name, M S::*member, std::string_view doc = "", Bounds bounds = {}) {
  return {name, offset_of(member), &kValueCodec<M>, Need::kOptional, doc, bounds};
}

// The fields of a part of S as fields of S, beside whose own they stand on the wire. Table<Part>::validate is not called.
template <class S, class Part>
Fields fields_of(Part S::*part, Fields fields) {
  for (Field& field : fields) field.offset += offset_of(part);
  return fields;
}
Fields joined(std::initializer_list<Fields> lists);

base::Result<> read_object(std::span<const Field> fields, const bj::value& v, const Path& path, UnknownKeys unknown,
                           void* out);
void write_object(std::span<const Field> fields, std::string& out, const void* value);
bj::object object_schema(std::span<const Field> fields, const void* defaults);

base::Result<> check_array(const bj::value& v, const Path& path, const Bounds& b);
// `append` makes one more element of the vector `out` and returns it: nothing is made of what follows a bad one.
base::Result<> read_elements(const bj::array& array, const Path& path, UnknownKeys unknown, const ValueCodec& codec,
                             void* out, void* (*append)(void* out));
// The elements lie from `first` on, `size` bytes each.
void write_elements(std::string& out, const ValueCodec& codec, const void* first, std::size_t count, std::size_t size);

// The bits of an integer from `least` to `most`.
base::Result<> read_integer(const bj::value& v, const Path& path, const Bounds& b, std::int64_t least,
                            std::uint64_t most, std::uint64_t& out);
bj::object integer_schema(const Bounds& b);

// Which of the names the value is.
base::Result<> read_enum(const bj::value& v, const Path& path, std::span<const std::string_view> names,
                         std::size_t& out);
bj::object enum_schema(std::span<const std::string_view> names);

// The whole of a message.
base::Result<> read_message(std::string_view json, UnknownKeys unknown, const ValueCodec& codec, void* out);

// What Boost.JSON writes, straight into `out`.
inline void append_json(std::string& out, const bj::value& value) {
  char buffer[256];
  bj::serializer serializer;
  serializer.reset(&value);
  while (!serializer.done()) {
    const bj::string_view part = serializer.read(buffer, sizeof buffer);
    out.append(part.data(), part.size());
  }
}
using base::append_json_string;
template <class T>
std::string json_of(const T& value) {
  std::string out;
  Codec<T>::write(out, value);
  return out;
}

// An object, member by member; ends with its scope.
class MembersWriter {
 public:
  explicit MembersWriter(std::string& out) : out_(out) { out_ += '{'; }
  MembersWriter(const MembersWriter&) = delete;
  MembersWriter& operator=(const MembersWriter&) = delete;
  ~MembersWriter() { out_ += '}'; }

  // Where the member's value goes.
  std::string& begin(std::string_view name) {
    if (out_.back() != '{') out_ += ',';
    append_json_string(out_, name);
    out_ += ':';
    return out_;
  }
  template <class T>
  void add(std::string_view name, const T& value) {
    Codec<T>::write(begin(name), value);
  }

 private:
  std::string& out_;
};

template <>
struct Codec<std::string> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                             std::string& out);
  static void write(std::string& out, const std::string& v) { append_json_string(out, v); }
  static bj::object schema(const Bounds& b);
};

template <>
struct Codec<bool> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown, bool& out);
  static void write(std::string& out, bool v) { out += v ? "true" : "false"; }
  static bj::object schema(const Bounds&) { return {{"type", "boolean"}}; }
};

template <class T>
requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) struct Codec<T> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys, T& out) {
    using Limits = std::numeric_limits<T>;
    std::uint64_t bits = 0;
    TRY(read_integer(v, path, b, static_cast<std::int64_t>(Limits::min()), static_cast<std::uint64_t>(Limits::max()),
                     bits));
    out = static_cast<T>(bits);
    return {};
  }
  static void write(std::string& out, T v) {
    const fmt::format_int text(v);
    out.append(text.data(), text.size());
  }
  static bj::object schema(const Bounds& b) { return integer_schema(b); }
};

template <>
struct Codec<double> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown, double& out);
  static void write(std::string& out, double v) { append_json(out, bj::value(v)); }
  static bj::object schema(const Bounds& b);
};

template <class E>
requires std::is_enum_v<E>
struct Codec<E> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys, E& out) {
    std::size_t index = 0;
    TRY(read_enum(v, path, kNames, index));
    out = EnumNames<E>::names[index].first;
    return {};
  }
  static void write(std::string& out, E v) { append_json_string(out, enum_name(v)); }
  static bj::object schema(const Bounds&) { return enum_schema(kNames); }

 private:
  static constexpr auto kNames = [] {
    std::array<std::string_view, EnumNames<E>::names.size()> names;
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = EnumNames<E>::names[i].second;
    return names;
  }();
};

template <class T>
struct Codec<std::optional<T>> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                             std::optional<T>& out) {
    out.reset();
    if (v.is_null()) return {};
    return Codec<T>::read(v, path, b, unknown, out.emplace());
  }
  static void write(std::string& out, const std::optional<T>& v) {
    if (v) {
      Codec<T>::write(out, *v);
    } else {
      out += "null";
    }
  }
  static bj::object schema(const Bounds& b) { return Codec<T>::schema(b); }
};

// Bounds of an array count its elements.
template <class T>
struct Codec<std::vector<T>> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                             std::vector<T>& out) {
    TRY(check_array(v, path, b));
    out.clear();
    out.reserve(v.get_array().size());
    return read_elements(v.get_array(), path, unknown, kValueCodec<T>, &out,
                         [](void* vector) -> void* { return &static_cast<std::vector<T>*>(vector)->emplace_back(); });
  }
  static void write(std::string& out, const std::vector<T>& v) {
    write_elements(out, kValueCodec<T>, v.data(), v.size(), sizeof(T));
  }
  static bj::object schema(const Bounds& b) {
    bj::object o{{"type", "array"}, {"items", Codec<T>::schema({})}};
    if (std::isfinite(b.max)) o["maxItems"] = static_cast<std::int64_t>(b.max);
    return o;
  }
};

template <class T>
struct Codec<std::map<std::string, T>> {
  using Map = std::map<std::string, T>;
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys unknown, Map& out) {
    if (!v.is_object()) return field_error(path, "type", fmt::format("{} must be an object", path));
    out.clear();
    for (const auto& [key, item] : v.get_object()) {
      const std::string name(key.data(), key.size());
      TRY(Codec<T>::read(item, path.member(name), Bounds{}, unknown, out[name]));
    }
    return {};
  }
  static void write(std::string& out, const Map& v) {
    MembersWriter members(out);
    for (const auto& [key, item] : v) members.add(key, item);
  }
  static bj::object schema(const Bounds&) {
    return {{"type", "object"}, {"additionalProperties", Codec<T>::schema({})}};
  }
};

// Free-form error details.
template <>
struct Codec<Details> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown, Details& out);
  static void write(std::string& out, const Details& v);
  static bj::object schema(const Bounds&) { return {{"type", "object"}}; }
};

template <HasTable T>
struct Codec<T> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys unknown, T& out) {
    TRY(read_object(fields(), v, path, unknown, &out));
    if constexpr (HasValidate<T>) TRY(Table<T>::validate(out));
    return {};
  }
  static void write(std::string& out, const T& v) { write_object(fields(), out, &v); }
  static bj::object schema(const Bounds&) {
    const T defaults{};
    return object_schema(fields(), &defaults);
  }

 private:
  static const Fields& fields() {
    static const Fields list = Table<T>::fields();
    return list;
  }
};

template <class T>
base::Result<T> decode(std::string_view json, UnknownKeys unknown) {
  base::Result<T> out;
  TRY(read_message(json, unknown, kValueCodec<T>, &*out));
  return out;
}

template <class T>
std::string encode(const T& value) {
  return json_of(value);
}

template <class T>
std::string json_schema() {
  return bj::serialize(Codec<T>::schema({}));
}

template <class E>
std::string_view enum_name(E value) {
  for (const auto& [candidate, name] : EnumNames<E>::names) {
    if (candidate == value) return name;
  }
  ASSERT(false, "value={}", static_cast<int>(value));
  return {};
}

template <class E>
std::optional<E> enum_from_name(std::string_view text) {
  for (const auto& [value, name] : EnumNames<E>::names) {
    if (name == text) return value;
  }
  return std::nullopt;
}

}  // namespace llorch::wire

// At the end of a .cpp, outside any namespace.
#define LLORCH_INSTANTIATE_WIRE(T)                                                         \
  template llorch::base::Result<T> llorch::wire::decode<T>(std::string_view, UnknownKeys); \
  template std::string llorch::wire::encode<T>(const T&);                                  \
  template std::string llorch::wire::json_schema<T>();
#define LLORCH_INSTANTIATE_ENUM(E)                         \
  template std::string_view llorch::wire::enum_name<E>(E); \
  template std::optional<E> llorch::wire::enum_from_name<E>(std::string_view);
