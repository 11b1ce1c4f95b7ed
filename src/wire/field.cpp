#include "wire/field.h"

#include "base/utf8.h"

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
