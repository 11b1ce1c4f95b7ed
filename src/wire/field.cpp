#include "wire/field.h"

#include "base/join.h"
#include "base/parse_json.h"
#include "base/utf8.h"
#include "wire/json_checks.h"

namespace llorch::wire {
namespace {

void* member(const Field& field, void* object) { return static_cast<std::byte*>(object) + field.offset; }
const void* member(const Field& field, const void* object) {
  return static_cast<const std::byte*>(object) + field.offset;
}

bj::string_view json_view(std::string_view text) { return {text.data(), text.size()}; }

std::string names(std::span<const Field> fields) {
  std::string out;
  for (const Field& field : fields) {
    if (!out.empty()) out += ", ";
    out += field.name;
  }
  return out;
}

base::Result<> refuse_unknown(std::span<const Field> fields, const bj::object& object, const Path& path) {
  for (const auto& [key, item] : object) {
    const std::string_view name(key.data(), key.size());
    if (std::ranges::find(fields, name, &Field::name) != fields.end()) continue;
    // The key itself may be anything, so only a clean identifier is repeated.
    const bool clean = base::is_valid_utf8(name) && name.size() <= 64 &&
                       name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
                           std::string_view::npos;
    const std::string full = path.member(clean ? name : "?").text();
    return field_error(full, "unknown",
                       fmt::format("{} is not a known field; the fields are: {}", full, names(fields)));
  }
  return {};
}

}  // namespace

Fields joined(std::initializer_list<Fields> lists) {
  Fields all;
  for (const Fields& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

base::Result<> read_object(std::span<const Field> fields, const bj::value& v, const Path& path, UnknownKeys unknown,
                           void* out) {
  if (!v.is_object()) {
    const std::string where = path.parent == nullptr ? "the body" : path.text();
    return field_error(path, "type", fmt::format("{} must be a JSON object", where));
  }
  const bj::object& object = v.get_object();
  if (unknown == UnknownKeys::kRefuse) TRY(refuse_unknown(fields, object, path));
  for (const Field& field : fields) {
    const auto it = object.find(json_view(field.name));
    const Path full = path.member(field.name);
    if (it != object.end()) {
      TRY(field.codec->read(it->value(), full, field.bounds, unknown, member(field, out)));
    } else if (field.need == Need::kRequired) {
      return field_error(full, "missing", fmt::format("{} is required", full));
    }
  }
  return {};
}

base::Result<> check_array(const bj::value& v, const Path& path, const Bounds& b) {
  if (!v.is_array()) return field_error(path, "type", fmt::format("{} must be an array", path));
  const std::size_t count = v.get_array().size();
  if (static_cast<double>(count) >= b.min && static_cast<double>(count) <= b.max) return {};
  return field_error(path, "length", fmt::format("{} has {} elements; at most {} are allowed", path, count, b.max));
}

base::Result<> read_elements(const bj::array& array, const Path& path, UnknownKeys unknown, const ValueCodec& codec,
                             void* out, void* (*append)(void* out)) {
  for (std::size_t i = 0; i < array.size(); ++i) {
    TRY(codec.read(array[i], path.element(i), Bounds{}, unknown, append(out)));
  }
  return {};
}

void write_elements(std::string& out, const ValueCodec& codec, const void* first, std::size_t count, std::size_t size) {
  out += '[';
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out += ',';
    codec.write(out, static_cast<const std::byte*>(first) + i * size);
  }
  out += ']';
}

base::Result<> read_integer(const bj::value& v, const Path& path, const Bounds& b, std::int64_t least,
                            std::uint64_t most, std::uint64_t& out) {
  const std::int64_t* const number = v.if_int64();
  const std::uint64_t* const above = v.if_uint64();
  if (number == nullptr && above == nullptr)
    return field_error(path, "type", fmt::format("{} must be an integer", path));
  const bool fits = number != nullptr ? *number >= least && (*number < 0 || static_cast<std::uint64_t>(*number) <= most)
                                      : *above <= most;
  const double value = number != nullptr ? static_cast<double>(*number) : static_cast<double>(*above);
  if (!fits || value < b.min || value > b.max) {
    const std::string low = std::isfinite(b.min) ? fmt::format("{:.0f}", b.min) : std::to_string(least);
    const std::string high = std::isfinite(b.max) ? fmt::format("{:.0f}", b.max) : std::to_string(most);
    return field_error(path, "range", fmt::format("{} must be between {} and {}", path, low, high));
  }
  out = number != nullptr ? static_cast<std::uint64_t>(*number) : *above;
  return {};
}
bj::object integer_schema(const Bounds& b) {
  bj::object o{{"type", "integer"}};
  if (std::isfinite(b.min)) o["minimum"] = static_cast<std::int64_t>(b.min);
  if (std::isfinite(b.max)) o["maximum"] = static_cast<std::int64_t>(b.max);
  return o;
}

base::Result<> read_enum(const bj::value& v, const Path& path, std::span<const std::string_view> names,
                         std::size_t& out) {
  const std::string_view text = v.is_string() ? std::string_view(v.get_string()) : std::string_view();
  const auto found = std::ranges::find(names, text);
  if (!v.is_string() || found == names.end()) {
    return field_error(path, "enum", fmt::format("{} must be one of: {}", path, base::join(names, ", ")));
  }
  out = static_cast<std::size_t>(found - names.begin());
  return {};
}
bj::object enum_schema(std::span<const std::string_view> names) {
  bj::array list;
  for (const std::string_view name : names) list.emplace_back(json_view(name));
  return {{"type", "string"}, {"enum", std::move(list)}};
}

base::Result<> Codec<std::string>::read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                                        std::string& out) {
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
  out.assign(s.data(), s.size());
  return {};
}
bj::object Codec<std::string>::schema(const Bounds& b) {
  bj::object o{{"type", "string"}};
  if (b.min > 0) o["minLength"] = static_cast<std::int64_t>(b.min);
  if (std::isfinite(b.max)) o["maxLength"] = static_cast<std::int64_t>(b.max);
  return o;
}

base::Result<> Codec<bool>::read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys, bool& out) {
  if (!v.is_bool()) return field_error(path, "type", fmt::format("{} must be true or false", path));
  out = v.get_bool();
  return {};
}

base::Result<> Codec<double>::read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys, double& out) {
  if (!v.is_number()) return field_error(path, "type", fmt::format("{} must be a number", path));
  const double d = v.to_number<double>();
  if (!std::isfinite(d) || d < b.min || d > b.max) {
    return field_error(path, "range", fmt::format("{} must be between {} and {}", path, b.min, b.max));
  }
  out = d + 0.0;  // -0 and 0 are one number: what is hashed must not tell them apart
  return {};
}
bj::object Codec<double>::schema(const Bounds& b) {
  bj::object o{{"type", "number"}};
  if (std::isfinite(b.min)) o["minimum"] = b.min;
  if (std::isfinite(b.max)) o["maximum"] = b.max;
  return o;
}

base::Result<> Codec<Details>::read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys, Details& out) {
  if (!v.is_object()) return field_error(path, "type", fmt::format("{} must be an object", path));
  out.clear();
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
  return {};
}
void Codec<Details>::write(std::string& out, const Details& v) {
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

base::Result<> read_message(std::string_view json, UnknownKeys unknown, const ValueCodec& codec, void* out) {
  bj::error_code ec;
  unsigned char first[4096];  // most messages fit
  bj::monotonic_resource memory(first, sizeof first);
  const bj::value value = base::parse_json(json, ec, &memory);
  if (ec) return field_error("", "json", fmt::format("the body is not valid JSON: {}", ec.message()));
  TRY(check_json(json, value));
  return codec.read(value, {}, {}, unknown, out);
}

void write_object(std::span<const Field> fields, std::string& out, const void* value) {
  MembersWriter members(out);
  for (const Field& field : fields) {
    const void* const at = member(field, value);
    if (!field.codec->absent(at)) field.codec->write(members.begin(field.name), at);
  }
}

bj::object object_schema(std::span<const Field> fields, const void* defaults) {
  bj::object properties;
  bj::array needed;
  for (const Field& field : fields) {
    bj::object property = field.codec->schema(field.bounds);
    if (!field.doc.empty()) property["description"] = json_view(field.doc);
    if (field.need == Need::kRequired) {
      needed.emplace_back(json_view(field.name));
    } else if (const void* const at = member(field, defaults); !field.codec->is_object && !field.codec->absent(at)) {
      std::string text;
      field.codec->write(text, at);
      property["default"] = bj::parse(text);
    }
    properties[json_view(field.name)] = std::move(property);
  }
  bj::object out{{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
  if (!needed.empty()) out["required"] = std::move(needed);
  return out;
}

}  // namespace llorch::wire
