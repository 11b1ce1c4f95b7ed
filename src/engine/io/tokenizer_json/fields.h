#pragma once
// Typed reads of a JSON object of a tokenizer file; inside of this directory.
#include <fmt/format.h>

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llorch::engine::io::tokenizer_json {

inline base::Error unsupported(std::string_view what) {
  return {base::ErrorCode::kUnsupportedTokenizer,
          fmt::format("tokenizer.json has {}, which this build cannot do exactly: use the model's GGUF", what),
          {}};
}

inline base::Error invalid(std::string_view what) {
  return {base::ErrorCode::kConfigKeyInvalid,
          fmt::format("the tokenizer's files contradict themselves: {}; download the model again", what),
          {}};
}

// A view of one object; it lives as long as the document. Absent and null are the same.
class Fields {
 public:
  // Anything but an object has no fields.
  explicit Fields(const boost::json::value* value) : object_(value ? value->if_object() : nullptr) {}

  bool is_object() const { return object_ != nullptr; }
  // Null when absent or null.
  const boost::json::value* find(std::string_view key) const {
    const boost::json::value* value = object_ ? object_->if_contains({key.data(), key.size()}) : nullptr;
    return value && !value->is_null() ? value : nullptr;
  }
  Fields object(std::string_view key) const { return Fields(find(key)); }
  const boost::json::array* list(std::string_view key) const {
    const boost::json::value* value = find(key);
    return value ? value->if_array() : nullptr;
  }
  // `absent` when absent or of another kind.
  bool boolean(std::string_view key, bool absent = false) const { return flag(key).value_or(absent); }
  std::optional<bool> flag(std::string_view key) const {
    const boost::json::value* value = find(key);
    return value && value->is_bool() ? std::optional(value->get_bool()) : std::nullopt;
  }
  std::string string(std::string_view key) const {
    const boost::json::value* value = find(key);
    return value && value->is_string() ? std::string(value->get_string()) : std::string();
  }
  std::optional<std::uint32_t> count(std::string_view key) const { return as_count(find(key)); }
  static std::optional<std::uint32_t> as_count(const boost::json::value* value) {
    const std::int64_t* number = value ? value->if_int64() : nullptr;
    if (!number || *number < 0 || *number > 0x7FFFFFFF) return std::nullopt;
    return static_cast<std::uint32_t>(*number);
  }

 private:
  const boost::json::object* object_;
};

}  // namespace llorch::engine::io::tokenizer_json
