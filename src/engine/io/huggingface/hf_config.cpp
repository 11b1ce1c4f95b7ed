#include "engine/io/huggingface/hf_config.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include "base/assert.h"
#include "base/json_text.h"
#include "engine/io/printable.h"
#include "engine/io/stored_file.h"

namespace llorch::engine::io {

namespace bj = boost::json;
using base::Error;
using base::ErrorCode;
using base::fail;
using base::Result;

struct HfConfig::Document {
  std::string source;
  bj::value root;
};

struct HfConfig::Reads {
  std::unordered_set<const bj::value*> values;
  std::unordered_set<const bj::object*> opened;
};

namespace {

constexpr std::string_view kFloatKey = "__float__";
constexpr std::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};

// The bare word of kWords at the start of `text`, or empty.
std::string_view word_at(std::string_view text) {
  for (const std::string_view word : kWords) {
    if (text.substr(0, word.size()) == word) return word;
  }
  return {};
}

// Calls `other(text)` for every stretch of `json` without bare words and `word(text)` for each of them, in order. Inside
// strings there are none.
template <class Other, class Word>
void split_bare_words(std::string_view json, Other&& other, Word&& word) {
  bool in_string = false;
  std::size_t start = 0;
  for (std::size_t i = 0; i < json.size();) {
    const char c = json[i];
    if (in_string) {
      in_string = c != '"';
      i += c == '\\' ? 2 : 1;
      continue;
    }
    in_string = c == '"';
    const std::string_view found = c == '-' || c == 'I' || c == 'N' ? word_at(json.substr(i)) : std::string_view();
    if (found.empty()) {
      ++i;
      continue;
    }
    other(json.substr(start, i - start));
    word(found);
    i += found.size();
    start = i;
  }
  other(json.substr(std::min(start, json.size())));
}

std::string as_float_object(std::string_view word) { return fmt::format("{{\"{}\":\"{}\"}}", kFloatKey, word); }

// Legal JSON: every bare word written as the object that newer files use.
std::string without_bare_words(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  split_bare_words(
      json, [&](std::string_view text) { out += text; }, [&](std::string_view word) { out += as_float_object(word); });
  return out;
}

// Where byte `position` of without_bare_words(json) comes from.
std::size_t original_position(std::string_view json, std::size_t position) {
  std::size_t original = 0, rewritten = 0, answer = json.size();
  const auto advance = [&](std::size_t from, std::size_t to) {
    if (position >= rewritten && position < rewritten + to) answer = original + (from == to ? position - rewritten : 0);
    original += from;
    rewritten += to;
  };
  split_bare_words(
      json, [&](std::string_view text) { advance(text.size(), text.size()); },
      [&](std::string_view word) { advance(word.size(), as_float_object(word).size()); });
  return answer;
}

// Every form of a number; absent for other values.
std::optional<double> number_of(const bj::value& value) {
  if (const auto* n = value.if_int64()) return static_cast<double>(*n);
  if (const auto* n = value.if_uint64()) return static_cast<double>(*n);
  if (const auto* n = value.if_double()) return *n;
  const bj::object* object = value.if_object();
  if (object == nullptr || object->size() != 1 || object->begin()->key() != kFloatKey) return {};
  const bj::string* word = object->begin()->value().if_string();
  if (word == nullptr) return {};
  if (*word == "Infinity") return std::numeric_limits<double>::infinity();
  if (*word == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (*word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  return {};
}

std::optional<std::uint64_t> count_of(const bj::value& value) {
  if (const auto* n = value.if_int64()) {
    return *n >= 0 ? std::optional(static_cast<std::uint64_t>(*n)) : std::nullopt;
  }
  if (const auto* n = value.if_uint64()) return *n;
  const auto* n = value.if_double();
  if (n == nullptr || !(*n >= 0 && *n < 0x1p64) || std::trunc(*n) != *n) return {};
  return static_cast<std::uint64_t>(*n);
}

std::optional<float> f32_of(const bj::value& value, HfConfig::Infinities infinities) {
  const auto number = number_of(value);
  if (!number || std::isnan(*number)) return {};
  const float rounded = static_cast<float>(*number);
  const bool accepted = std::isfinite(rounded) || (std::isinf(*number) && infinities == HfConfig::Infinities::kAccept);
  return accepted ? std::optional(rounded) : std::nullopt;
}

HfKind kind_of(const bj::value& value) {
  if (number_of(value)) return HfKind::kNumber;
  if (value.is_null()) return HfKind::kNull;
  if (value.is_bool()) return HfKind::kBool;
  if (value.is_string()) return HfKind::kString;
  return value.is_array() ? HfKind::kList : HfKind::kObject;
}

// "the number -3", "the string 'auto'", "a list"
std::string describe(const bj::value& value) {
  switch (kind_of(value)) {
    case HfKind::kNumber: return fmt::format("the number {}", *number_of(value));
    case HfKind::kString: return fmt::format("the string {}", printable(std::string_view(value.get_string())));
    case HfKind::kBool: return value.get_bool() ? "true" : "false";
    case HfKind::kList: return "a list";
    case HfKind::kObject: return "an object";
    default: return "null";
  }
}

template <class T>
constexpr std::string_view wanted() {
  if constexpr (std::is_same_v<T, std::uint64_t>) return "an integer of at least 0";
  if constexpr (std::is_same_v<T, std::uint32_t>) return "an integer from 0 to 4294967295";
  if constexpr (std::is_same_v<T, float>) return "a finite number";
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, std::string_view>) return "a string";
}

template <class T>
std::optional<T> convert(const bj::value& value, HfConfig::Infinities infinities) {
  if constexpr (std::is_same_v<T, float>) {
    return f32_of(value, infinities);
  } else if constexpr (std::is_same_v<T, bool>) {
    return value.is_bool() ? std::optional(value.get_bool()) : std::nullopt;
  } else if constexpr (std::is_same_v<T, std::string_view>) {
    return value.is_string() ? std::optional(std::string_view(value.get_string())) : std::nullopt;
  } else {
    const auto count = count_of(value);
    return count && *count <= std::numeric_limits<T>::max() ? std::optional(static_cast<T>(*count)) : std::nullopt;
  }
}

// One object of a config: how its keys are named in messages, and its values.
struct View {
  std::string_view source;
  std::string_view path;
  const bj::object& object;
  std::unordered_set<const bj::value*>* reads;

  const bj::value* find(std::string_view key) const {
    const bj::value* value = object.if_contains(key);
    if (reads != nullptr && value != nullptr) reads->insert(value);
    return value;
  }

  tl::unexpected<Error> wrong(std::string_view key, const bj::value& value, std::string_view wish) const {
    return fail(ErrorCode::kConfigKeyInvalid,
                fmt::format("{}: {}{} is {}, wanted {}", source, path, key, describe(value), wish));
  }

  Result<const bj::value*> require(std::string_view key) const {
    const bj::value* value = find(key);
    if (value != nullptr && !value->is_null()) return value;
    return fail(ErrorCode::kConfigKeyMissing,
                fmt::format("{}: the key {}{} is {}", source, path, key, value == nullptr ? "missing" : "null"));
  }

  template <class T>
  Result<T> read(std::string_view key, HfConfig::Infinities infinities = HfConfig::Infinities::kRefuse) const {
    const bj::value* value = TRY(require(key));
    const auto converted = convert<T>(*value, infinities);
    if (!converted) return wrong(key, *value, wanted<T>());
    return *converted;
  }

  template <class T>
  Result<std::vector<T>> read_list(std::string_view key,
                                   HfConfig::Infinities infinities = HfConfig::Infinities::kRefuse) const {
    const bj::value* value = TRY(require(key));
    const bj::array* list = value->if_array();
    if (list == nullptr) return wrong(key, *value, "a list");
    std::vector<T> out;
    out.reserve(list->size());
    for (const bj::value& item : *list) {
      const auto converted = convert<T>(item, infinities);
      if (!converted) return wrong(fmt::format("{}[{}]", key, out.size()), item, wanted<T>());
      out.push_back(*converted);
    }
    return out;
  }
};

View view(const std::string& source, const std::string& path, const void* object,
          std::unordered_set<const bj::value*>* reads) {
  return {source, path, *static_cast<const bj::object*>(object), reads};
}

// A value as JSON; a number of integral value without a fraction, whatever the file writes.
std::string json_of(const bj::value& value) {
  return value.is_double() ? fmt::format("{}", value.get_double()) : bj::serialize(value);
}

}  // namespace

Result<HfConfig> HfConfig::parse(std::string_view json, std::string source, const HfConfigLimits& limits) {
  if (json.size() > limits.bytes_max) {
    return fail(ErrorCode::kCorruptFile,
                fmt::format("{}: {} bytes of configuration, the limit is {}", source, json.size(), limits.bytes_max));
  }
  const std::string text = without_bare_words(json);
  bj::parse_options options;
  options.max_depth = limits.depth_max;
  if (base::object_steps(text) > base::kObjectStepsOfFileMax) {
    return fail(ErrorCode::kCorruptFile, fmt::format("{}: its objects have too many members", source));
  }
  bj::parser parser({}, options);
  bj::error_code ec;
  const std::size_t end = parser.write_some(text, ec);
  const bool trailing = text.find_first_not_of(" \t\r\n", end) != std::string::npos;
  if (ec || trailing) {
    const std::size_t position = original_position(json, end);
    const std::string what = ec ? ec.message() : "something follows the object";
    return fail(Error{
        ErrorCode::kCorruptFile,
        fmt::format("{}: at byte {}: not valid JSON: {}", source, position, what),
        {}}.with("offset", static_cast<std::int64_t>(position)));
  }
  auto document = std::make_shared<Document>(Document{std::move(source), parser.release()});
  if (kind_of(document->root) != HfKind::kObject) {
    return fail(ErrorCode::kCorruptFile,
                fmt::format("{}: the configuration is {}, not an object", document->source, describe(document->root)));
  }
  HfConfig config;
  config.object_ = document->root.if_object();
  config.document_ = std::move(document);
  return config;
}

Result<HfConfig> HfConfig::open(const std::filesystem::path& path) {
  return parse(TRY(read_text_file(path, HfConfigLimits().bytes_max)), path.string());
}

HfConfig HfConfig::watched() const {
  HfConfig same = *this;
  same.reads_ = std::make_shared<Reads>();
  return same;
}

std::vector<HfUnread> HfConfig::unread() const {
  ASSERT(reads_ != nullptr, "unread() of a view that is not watched");
  std::vector<HfUnread> out;
  const auto visit = [&](const auto& self, const bj::object& object, const std::string& path) -> void {
    for (const auto& item : object) {
      const bj::value& value = item.value();
      if (value.is_null()) continue;
      std::string key = path + std::string(item.key());
      if (!reads_->values.contains(&value))
        out.push_back({std::move(key), kind_of(value), json_of(value)});
      else if (const bj::object* inner = value.if_object(); inner != nullptr && reads_->opened.contains(inner))
        self(self, *inner, key + ".");
    }
  };
  visit(visit, *static_cast<const bj::object*>(object_), path_);
  return out;
}

const std::string& HfConfig::source() const { return document_->source; }

HfKind HfConfig::kind(std::string_view key) const {
  const bj::value* value = view(source(), path_, object_, reads_ ? &reads_->values : nullptr).find(key);
  return value == nullptr ? HfKind::kAbsent : kind_of(*value);
}

bool HfConfig::contains(std::string_view key) const {
  const HfKind found = kind(key);
  return found != HfKind::kAbsent && found != HfKind::kNull;
}

std::vector<std::string_view> HfConfig::keys() const {
  std::vector<std::string_view> out;
  for (const auto& item : *static_cast<const bj::object*>(object_)) out.push_back(item.key());
  return out;
}

Result<std::uint64_t> HfConfig::u64(std::string_view key) const {
  return view(source(), path_, object_, reads_ ? &reads_->values : nullptr).read<std::uint64_t>(key);
}
Result<std::uint32_t> HfConfig::u32(std::string_view key) const {
  return view(source(), path_, object_, reads_ ? &reads_->values : nullptr).read<std::uint32_t>(key);
}
Result<float> HfConfig::f32(std::string_view key, Infinities infinities) const {
  return view(source(), path_, object_, reads_ ? &reads_->values : nullptr).read<float>(key, infinities);
}
Result<bool> HfConfig::boolean(std::string_view key) const {
  return view(source(), path_, object_, reads_ ? &reads_->values : nullptr).read<bool>(key);
}
Result<std::string_view> HfConfig::string(std::string_view key) const {
  return view(source(), path_, object_, reads_ ? &reads_->values : nullptr).read<std::string_view>(key);
}

Result<HfConfig> HfConfig::object(std::string_view key) const {
  const View self = view(source(), path_, object_, reads_ ? &reads_->values : nullptr);
  const bj::value* value = TRY(self.require(key));
  if (kind_of(*value) != HfKind::kObject) return self.wrong(key, *value, "an object");
  HfConfig inner;
  inner.document_ = document_;
  inner.reads_ = reads_;
  if (reads_) reads_->opened.insert(value->if_object());
  inner.object_ = value->if_object();
  inner.path_ = fmt::format("{}{}.", path_, key);
  return inner;
}

Result<std::vector<std::uint32_t>> HfConfig::u32_list(std::string_view key) const {
  return view(source(), path_, object_, reads_ ? &reads_->values : nullptr).read_list<std::uint32_t>(key);
}
Result<std::vector<float>> HfConfig::f32_list(std::string_view key, Infinities infinities) const {
  return view(source(), path_, object_, reads_ ? &reads_->values : nullptr).read_list<float>(key, infinities);
}
Result<std::vector<bool>> HfConfig::boolean_list(std::string_view key) const {
  return view(source(), path_, object_, reads_ ? &reads_->values : nullptr).read_list<bool>(key);
}
Result<std::vector<std::string_view>> HfConfig::string_list(std::string_view key) const {
  return view(source(), path_, object_, reads_ ? &reads_->values : nullptr).read_list<std::string_view>(key);
}

Result<std::uint64_t> HfConfig::u64_or(std::string_view key, std::uint64_t absent) const {
  return contains(key) ? u64(key) : absent;
}
Result<std::uint32_t> HfConfig::u32_or(std::string_view key, std::uint32_t absent) const {
  return contains(key) ? u32(key) : absent;
}
Result<float> HfConfig::f32_or(std::string_view key, float absent) const { return contains(key) ? f32(key) : absent; }
Result<bool> HfConfig::boolean_or(std::string_view key, bool absent) const {
  return contains(key) ? boolean(key) : absent;
}
Result<std::string_view> HfConfig::string_or(std::string_view key, std::string_view absent) const {
  return contains(key) ? string(key) : absent;
}

}  // namespace llorch::engine::io
