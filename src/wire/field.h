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
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "base/assert.h"
#include "base/json_text.h"
#include "wire/duplicate_keys.h"
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
struct fmt::formatter<llorch::wire::Path> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const llorch::wire::Path& path, Context& context) const {
    return fmt::formatter<std::string>::format(path.text(), context);
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

// read() takes the value apart; write() appends its JSON; schema() describes it.
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
               void* out) -> base::Result<> {
      auto value = Codec<M>::read(v, path, b, unknown);
      if (!value) return base::fail(std::move(value).error());
      *static_cast<M*>(out) = std::move(*value);
      return {};
    },
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
  static base::Result<std::string> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown) {
    if (!v.is_string()) return field_error(path, "type", fmt::format("{} must be a string", path));
    const auto& s = v.get_string();
    if (static_cast<double>(s.size()) < b.min || static_cast<double>(s.size()) > b.max) {
      return field_error(path, "length",
                         fmt::format("{} has {} bytes; allowed are {} to {}", path, s.size(),
                                     static_cast<std::int64_t>(std::max(0.0, b.min)), b.max));
    }
    // A client's text may not hold NUL; what a model says may.
    if (unknown == UnknownKeys::kRefuse && s.find('\0') != bj::string::npos) {
      return field_error(path, "nul", fmt::format("{} holds a NUL byte", path));
    }
    return std::string(s.data(), s.size());
  }
  static void write(std::string& out, const std::string& v) { append_json_string(out, v); }
  static bj::object schema(const Bounds& b) {
    bj::object o{{"type", "string"}};
    if (b.min > 0) o["minLength"] = static_cast<std::int64_t>(b.min);
    if (std::isfinite(b.max)) o["maxLength"] = static_cast<std::int64_t>(b.max);
    return o;
  }
};

template <>
struct Codec<bool> {
  static base::Result<bool> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys) {
    if (!v.is_bool()) return field_error(path, "type", fmt::format("{} must be true or false", path));
    return v.get_bool();
  }
  static void write(std::string& out, bool v) { out += v ? "true" : "false"; }
  static bj::object schema(const Bounds&) { return {{"type", "boolean"}}; }
};

template <class T>
requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) struct Codec<T> {
  static base::Result<T> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys) {
    const bool is_int = v.is_int64(), is_uint = v.is_uint64();
    if (!is_int && !is_uint) return field_error(path, "type", fmt::format("{} must be an integer", path));
    const bool fits = is_int ? std::in_range<T>(v.get_int64()) : std::in_range<T>(v.get_uint64());
    const double number = is_int ? static_cast<double>(v.get_int64()) : static_cast<double>(v.get_uint64());
    if (!fits || number < b.min || number > b.max) {
      return field_error(path, "range", fmt::format("{} must be between {} and {}", path, low(b), high(b)));
    }
    return static_cast<T>(is_int ? static_cast<T>(v.get_int64()) : static_cast<T>(v.get_uint64()));
  }
  static void write(std::string& out, T v) { fmt::format_to(std::back_inserter(out), "{}", v); }
  static bj::object schema(const Bounds& b) {
    bj::object o{{"type", "integer"}};
    if (std::isfinite(b.min)) o["minimum"] = static_cast<std::int64_t>(b.min);
    if (std::isfinite(b.max)) o["maximum"] = static_cast<std::int64_t>(b.max);
    return o;
  }

 private:
  static std::string low(const Bounds& b) {
    return std::isfinite(b.min) ? fmt::format("{:.0f}", b.min) : fmt::format("{}", std::numeric_limits<T>::min());
  }
  static std::string high(const Bounds& b) {
    return std::isfinite(b.max) ? fmt::format("{:.0f}", b.max) : fmt::format("{}", std::numeric_limits<T>::max());
  }
};

template <>
struct Codec<double> {
  static base::Result<double> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys) {
    if (!v.is_number()) return field_error(path, "type", fmt::format("{} must be a number", path));
    const double d = v.to_number<double>();
    if (!std::isfinite(d) || d < b.min || d > b.max) {
      return field_error(path, "range", fmt::format("{} must be between {} and {}", path, b.min, b.max));
    }
    return d + 0.0;  // -0 and 0 are one number: what is hashed must not tell them apart
  }
  static void write(std::string& out, double v) { append_json(out, bj::value(v)); }
  static bj::object schema(const Bounds& b) {
    bj::object o{{"type", "number"}};
    if (std::isfinite(b.min)) o["minimum"] = b.min;
    if (std::isfinite(b.max)) o["maximum"] = b.max;
    return o;
  }
};

template <class E>
requires std::is_enum_v<E>
struct Codec<E> {
  static std::string allowed() {
    std::string out;
    for (const auto& [value, name] : EnumNames<E>::names) {
      if (!out.empty()) out += ", ";
      out += name;
    }
    return out;
  }
  static base::Result<E> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys) {
    if (v.is_string()) {
      for (const auto& [value, name] : EnumNames<E>::names) {
        if (std::string_view(v.get_string().data(), v.get_string().size()) == name) return value;
      }
    }
    return field_error(path, "enum", fmt::format("{} must be one of: {}", path, allowed()));
  }
  static void write(std::string& out, E v) { append_json_string(out, enum_name(v)); }
  static bj::object schema(const Bounds&) {
    bj::array names;
    for (const auto& [value, name] : EnumNames<E>::names) names.emplace_back(bj::string_view(name.data(), name.size()));
    return {{"type", "string"}, {"enum", std::move(names)}};
  }
};

template <class T>
struct Codec<std::optional<T>> {
  static base::Result<std::optional<T>> read(const bj::value& v, const Path& path, const Bounds& b,
                                             UnknownKeys unknown) {
    if (v.is_null()) return std::optional<T>();
    return std::optional<T>(TRY(Codec<T>::read(v, path, b, unknown)));
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
  static base::Result<std::vector<T>> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown) {
    if (!v.is_array()) return field_error(path, "type", fmt::format("{} must be an array", path));
    const auto& array = v.get_array();
    if (static_cast<double>(array.size()) < b.min || static_cast<double>(array.size()) > b.max) {
      return field_error(path, "length",
                         fmt::format("{} has {} elements; at most {} are allowed", path, array.size(), b.max));
    }
    std::vector<T> out;
    out.reserve(array.size());
    for (std::size_t i = 0; i < array.size(); ++i) {
      out.push_back(TRY(Codec<T>::read(array[i], path.element(i), Bounds{}, unknown)));
    }
    return out;
  }
  static void write(std::string& out, const std::vector<T>& v) {
    out += '[';
    for (const T& item : v) {
      if (out.back() != '[') out += ',';
      Codec<T>::write(out, item);
    }
    out += ']';
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
  static base::Result<Map> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys unknown) {
    if (!v.is_object()) return field_error(path, "type", fmt::format("{} must be an object", path));
    Map out;
    for (const auto& [key, item] : v.get_object()) {
      const std::string name(key.data(), key.size());
      out[name] = TRY(Codec<T>::read(item, path.member(name), Bounds{}, unknown));
    }
    return out;
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
  static base::Result<Details> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys) {
    if (!v.is_object()) return field_error(path, "type", fmt::format("{} must be an object", path));
    Details out;
    for (const auto& [key, item] : v.get_object()) {
      std::string name(key.data(), key.size());
      if (item.is_int64()) {
        out.emplace_back(std::move(name), item.get_int64());
      } else if (item.is_string()) {
        out.emplace_back(std::move(name), std::string(item.get_string().data(), item.get_string().size()));
      } else {
        out.emplace_back(std::move(name), bj::serialize(item));
      }
    }
    return out;
  }
  static void write(std::string& out, const Details& v) {
    bj::object object;  // a name that comes twice counts once
    for (const auto& [key, item] : v) {
      if (const auto* number = std::get_if<std::int64_t>(&item)) {
        object[key] = *number;
      } else {
        object[key] = std::get<std::string>(item);
      }
    }
    append_json(out, object);
  }
  static bj::object schema(const Bounds&) { return {{"type", "object"}}; }
};

template <HasTable T>
struct Codec<T> {
  static base::Result<T> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys unknown) {
    T out{};
    TRY(read_object(fields(), v, path, unknown, &out));
    if constexpr (HasValidate<T>) TRY(Table<T>::validate(out));
    return out;
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
  bj::error_code ec;
  unsigned char first[4096];  // most messages fit
  bj::monotonic_resource memory(first, sizeof first);
  const bj::value value = bj::parse(bj::string_view(json.data(), json.size()), ec, &memory);
  if (ec) return field_error("", "json", fmt::format("the body is not valid JSON: {}", ec.message()));
  TRY(refuse_duplicate_keys(json, value));
  return Codec<T>::read(value, {}, {}, unknown);
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
