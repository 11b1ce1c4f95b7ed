#include "engine/io/gguf.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/utf8.h"

namespace llorch::engine::io {

using base::Error;
using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

template <class T>
constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

template <class T>
T element_at(std::span<const std::byte> bytes, std::uint64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

// Calls `visit` with element i as its own C++ type; numbers and bools only.
template <class Visit>
bool visit_number(const GgufArray& array, std::uint64_t i, Visit&& visit) {
  switch (array.element_type) {
    case GgufType::kU8: return visit(element_at<std::uint8_t>(array.bytes, i));
    case GgufType::kI8: return visit(element_at<std::int8_t>(array.bytes, i));
    case GgufType::kU16: return visit(element_at<std::uint16_t>(array.bytes, i));
    case GgufType::kI16: return visit(element_at<std::int16_t>(array.bytes, i));
    case GgufType::kU32: return visit(element_at<std::uint32_t>(array.bytes, i));
    case GgufType::kI32: return visit(element_at<std::int32_t>(array.bytes, i));
    case GgufType::kU64: return visit(element_at<std::uint64_t>(array.bytes, i));
    case GgufType::kI64: return visit(element_at<std::int64_t>(array.bytes, i));
    case GgufType::kF32: return visit(element_at<float>(array.bytes, i));
    case GgufType::kF64: return visit(element_at<double>(array.bytes, i));
    case GgufType::kBool: return visit(element_at<std::uint8_t>(array.bytes, i) != 0);
    case GgufType::kString:
    case GgufType::kArray: return false;
  }
  return false;
}

template <class Out, class In>
bool to_integer(In in, Out& out) {
  if constexpr (kIsInteger<In>) {
    if (!std::in_range<Out>(in)) return false;
    out = static_cast<Out>(in);
    return true;
  } else {
    return false;
  }
}

template <class In>
bool to_f32(In in, float& out) {
  if constexpr (std::is_floating_point_v<In>) {
    out = static_cast<float>(in);
    return std::isfinite(out);
  } else {
    return false;
  }
}

std::string escaped(std::string_view text, std::size_t bytes_max) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (out.size() >= bytes_max) return out + "...";
    const auto step = base::next_code_point(text.substr(i));
    const auto bytes = text.substr(i, std::max<std::size_t>(step.bytes, 1));
    if (step.status == base::Utf8Status::kComplete && step.code_point >= 0x20 && step.code_point != 0x7f) {
      out += bytes;
    } else if (bytes == "\n") {
      out += "\\n";
    } else {
      for (const unsigned char c : bytes) out += fmt::format("\\x{:02x}", c);
    }
    i += bytes.size();
  }
  return out;
}

// Calls `visit(text)` for each string of `array` until it returns false.
template <class Visit>
void for_each_string(const GgufArray& array, Visit&& visit) {
  std::size_t position = 0;
  for (std::uint64_t i = 0; i < array.count; ++i) {
    std::uint64_t length = 0;
    std::memcpy(&length, array.bytes.data() + position, sizeof length);
    position += sizeof length;
    if (!visit(std::string_view(reinterpret_cast<const char*>(array.bytes.data() + position), length))) return;
    position += length;
  }
}

std::string array_text(const GgufArray& array, std::size_t bytes_max) {
  std::string out = fmt::format("[{} {}]", array.count, name_of(array.element_type));
  std::string_view separator = " ";
  const auto append = [&](const std::string& item) {
    out += separator;
    out += item;
    separator = ", ";
    return out.size() < bytes_max;
  };
  if (array.element_type == GgufType::kString) {
    std::uint64_t shown = 0;
    for_each_string(array, [&](std::string_view text) {
      ++shown;
      return append(fmt::format("\"{}\"", escaped(text, bytes_max / 2)));
    });
    return shown < array.count ? out + ", ..." : out;
  }
  for (std::uint64_t i = 0; i < array.count; ++i) {
    if (!visit_number(array, i, [&](auto value) { return append(fmt::format("{}", value)); })) {
      return i + 1 < array.count ? out + ", ..." : out;
    }
  }
  return out;
}

}  // namespace

std::string_view name_of(GgufType type) {
  switch (type) {
    case GgufType::kU8: return "u8";
    case GgufType::kI8: return "i8";
    case GgufType::kU16: return "u16";
    case GgufType::kI16: return "i16";
    case GgufType::kU32: return "u32";
    case GgufType::kI32: return "i32";
    case GgufType::kF32: return "f32";
    case GgufType::kBool: return "bool";
    case GgufType::kString: return "string";
    case GgufType::kArray: return "array";
    case GgufType::kU64: return "u64";
    case GgufType::kI64: return "i64";
    case GgufType::kF64: return "f64";
  }
  return "?";
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto at = std::lower_bound(keys_sorted_.begin(), keys_sorted_.end(), key,
                                   [&](std::uint32_t i, std::string_view k) { return metadata_[i].key < k; });
  return at != keys_sorted_.end() && metadata_[*at].key == key ? &metadata_[*at].value : nullptr;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto at = std::lower_bound(names_sorted_.begin(), names_sorted_.end(), name,
                                   [&](std::uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  return at != names_sorted_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

Result<const GgufValue*> GgufFile::require(std::string_view key) const {
  if (const auto* value = find(key)) return value;
  return fail(ErrorCode::kConfigKeyMissing, fmt::format("{}: the metadata key {} is missing", source(), key));
}

Error GgufFile::wrong_type(std::string_view key, const GgufValue& value, std::string_view wanted) const {
  return {ErrorCode::kConfigKeyInvalid,
          fmt::format("{}: the metadata key {} is {} {}, wanted {}", source(), key, name_of(type_of(value)),
                      to_text(value, 40), wanted),
          {}};
}

Result<std::uint64_t> GgufFile::u64(std::string_view key) const {
  const auto* value = TRY(require(key));
  std::uint64_t out = 0;
  if (!std::visit([&](const auto& v) { return to_integer(v, out); }, *value)) {
    return fail(wrong_type(key, *value, "a count (an integer of at least 0)"));
  }
  return out;
}

Result<std::uint32_t> GgufFile::u32(std::string_view key) const {
  const auto* value = TRY(require(key));
  std::uint32_t out = 0;
  if (!std::visit([&](const auto& v) { return to_integer(v, out); }, *value)) {
    return fail(wrong_type(key, *value, "an integer from 0 to 4294967295"));
  }
  return out;
}

Result<float> GgufFile::f32(std::string_view key) const {
  const auto* value = TRY(require(key));
  float out = 0;
  if (!std::visit([&](const auto& v) { return to_f32(v, out); }, *value)) {
    return fail(wrong_type(key, *value, "a finite float"));
  }
  return out;
}

Result<bool> GgufFile::boolean(std::string_view key) const {
  const auto* value = TRY(require(key));
  if (const auto* flag = std::get_if<bool>(value)) return *flag;
  return fail(wrong_type(key, *value, "a bool"));
}

Result<std::string_view> GgufFile::string(std::string_view key) const {
  const auto* value = TRY(require(key));
  const auto* text = std::get_if<std::string_view>(value);
  if (text == nullptr || !base::is_valid_utf8(*text)) return fail(wrong_type(key, *value, "a UTF-8 string"));
  return *text;
}

Result<std::uint64_t> GgufFile::u64_or(std::string_view key, std::uint64_t absent) const {
  return contains(key) ? u64(key) : absent;
}
Result<std::uint32_t> GgufFile::u32_or(std::string_view key, std::uint32_t absent) const {
  return contains(key) ? u32(key) : absent;
}
Result<float> GgufFile::f32_or(std::string_view key, float absent) const { return contains(key) ? f32(key) : absent; }
Result<bool> GgufFile::boolean_or(std::string_view key, bool absent) const {
  return contains(key) ? boolean(key) : absent;
}
Result<std::string_view> GgufFile::string_or(std::string_view key, std::string_view absent) const {
  return contains(key) ? string(key) : absent;
}

Result<std::vector<std::string_view>> GgufFile::string_array(std::string_view key) const {
  const auto* value = TRY(require(key));
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr || array->element_type != GgufType::kString) {
    return fail(wrong_type(key, *value, "an array of strings"));
  }
  std::vector<std::string_view> out;
  out.reserve(array->count);
  for_each_string(*array, [&](std::string_view text) {
    out.push_back(text);
    return true;
  });
  return out;
}

Result<std::vector<float>> GgufFile::f32_array(std::string_view key) const {
  const auto* value = TRY(require(key));
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr || (array->element_type != GgufType::kF32 && array->element_type != GgufType::kF64)) {
    return fail(wrong_type(key, *value, "an array of floats"));
  }
  std::vector<float> out(array->count);
  for (std::uint64_t i = 0; i < array->count; ++i) {
    if (!visit_number(*array, i, [&](auto v) { return to_f32(v, out[i]); })) {
      return fail(wrong_type(key, *value, fmt::format("finite floats; element {} is not", i)));
    }
  }
  return out;
}

Result<std::vector<std::int32_t>> GgufFile::i32_array(std::string_view key) const {
  const auto* value = TRY(require(key));
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr) return fail(wrong_type(key, *value, "an array of integers"));
  switch (array->element_type) {
    case GgufType::kF32:
    case GgufType::kF64:
    case GgufType::kBool:
    case GgufType::kString: return fail(wrong_type(key, *value, "an array of integers"));
    default: break;
  }
  std::vector<std::int32_t> out(array->count);
  for (std::uint64_t i = 0; i < array->count; ++i) {
    if (!visit_number(*array, i, [&](auto v) { return to_integer(v, out[i]); })) {
      return fail(wrong_type(key, *value, fmt::format("32-bit integers; element {} is out of range", i)));
    }
  }
  return out;
}

std::string to_text(const GgufValue& value, std::size_t bytes_max) {
  return std::visit(
      [&](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string_view>) {
          return fmt::format("\"{}\"", escaped(v, bytes_max));
        } else if constexpr (std::is_same_v<T, GgufArray>) {
          return array_text(v, bytes_max);
        } else {
          return fmt::format("{}", v);
        }
      },
      value);
}

}  // namespace llorch::engine::io
