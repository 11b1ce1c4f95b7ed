#pragma once
// The config.json of a Hugging Face model, read as the library writes it (transformers 4.x and 5.x).
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::engine::io {

enum class HfKind : std::uint8_t { kAbsent, kNull, kBool, kNumber, kString, kList, kObject };

struct HfConfigLimits {
  std::size_t bytes_max = 4u << 20;
  std::size_t depth_max = 32;
};

// A key that nobody asked for: its path, its kind and its value as JSON.
struct HfUnread {
  std::string key;  // text_config.rope_parameters.factor
  HfKind kind = HfKind::kNull;
  std::string value;
};

// A JSON object with typed reads, and through object() a view of an object inside it. Copies are cheap and share one
// parsed document; strings handed out live as long as any copy. Immutable, so any thread may read it.
//
// A key whose value is null reads as absent: contains() is false, *_or() gives the default. kind() and is_null() tell the
// two apart where a null means something of its own (a null sliding_window is "no window", a missing one the default).
//
// Numbers: counts accept integers and floats of integral value (1.0, 1e6); floats accept any number. A non-finite one may
// be written {"__float__": "Infinity"} or as the bare words Infinity, -Infinity and NaN; it is refused where it is read,
// except by the reads that take infinities.
class HfConfig {
 public:
  enum class Infinities : bool { kRefuse, kAccept };  // NaN is refused by both

  // `source` stands for the path in messages. Errors: CORRUPT_FILE (no JSON object, too large, too deep, not UTF-8: the
  // message names the byte).
  static base::Result<HfConfig> parse(std::string_view json, std::string source = "config.json",
                                      const HfConfigLimits& limits = {});
  // Errors: IO_ERROR too.
  static base::Result<HfConfig> open(const std::filesystem::path& path);

  // The same view, which from here on notes each key that it, its copies and the views of its objects are asked for. For one
  // thread at a time.
  HfConfig watched() const;
  // Of a watched view: the keys nobody asked for, in file order; of an object that was not opened the object alone. A null
  // stands for an absent key and is left out.
  std::vector<HfUnread> unread() const;

  const std::string& source() const;
  HfKind kind(std::string_view key) const;
  bool contains(std::string_view key) const;  // there and not null
  bool is_null(std::string_view key) const { return kind(key) == HfKind::kNull; }
  std::vector<std::string_view> keys() const;  // in file order; those of null values too

  // CONFIG_KEY_MISSING when absent or null; CONFIG_KEY_INVALID when of another kind or out of range. Messages name keys of
  // nested objects with their path: text_config.head_dim.
  base::Result<std::uint64_t> u64(std::string_view key) const;
  base::Result<std::uint32_t> u32(std::string_view key) const;
  base::Result<float> f32(std::string_view key, Infinities infinities = Infinities::kRefuse) const;
  base::Result<bool> boolean(std::string_view key) const;
  base::Result<std::string_view> string(std::string_view key) const;
  base::Result<HfConfig> object(std::string_view key) const;
  base::Result<std::vector<std::uint32_t>> u32_list(std::string_view key) const;
  base::Result<std::vector<float>> f32_list(std::string_view key, Infinities infinities = Infinities::kRefuse) const;
  base::Result<std::vector<bool>> boolean_list(std::string_view key) const;
  base::Result<std::vector<std::string_view>> string_list(std::string_view key) const;
  // The same with a value for an absent or null key; a key that is there but invalid is still an error.
  base::Result<std::uint64_t> u64_or(std::string_view key, std::uint64_t absent) const;
  base::Result<std::uint32_t> u32_or(std::string_view key, std::uint32_t absent) const;
  base::Result<float> f32_or(std::string_view key, float absent) const;
  base::Result<bool> boolean_or(std::string_view key, bool absent) const;
  base::Result<std::string_view> string_or(std::string_view key, std::string_view absent) const;

 private:
  struct Document;
  struct Reads;
  HfConfig() = default;

  std::shared_ptr<const Document> document_;
  std::shared_ptr<Reads> reads_;  // null: not watched
  const void* object_ = nullptr;  // the JSON object this is a view of, inside document_
  std::string path_;              // "" or "text_config."
};

}  // namespace llorch::engine::io
