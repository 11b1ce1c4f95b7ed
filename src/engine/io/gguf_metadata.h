#pragma once
// Metadata of a GGUF file that is being made: keys with values it owns, in the order in which they were put.
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/io/gguf.h"
#include "engine/io/gguf_writer.h"

namespace llorch::engine::io {

struct GgufFlags {
  std::vector<std::uint8_t> values;  // 0 or 1
};

// GgufValue: a value as a file has it, which must stay open.
using GgufMetadataValue = std::variant<std::uint32_t, float, bool, std::string, std::vector<std::int32_t>,
                                       std::vector<float>, std::vector<std::string>, GgufFlags, GgufValue>;

struct GgufMetadataEntry {
  std::string key;
  GgufMetadataValue value;
};

class GgufMetadata {
 public:
  // In the place of the value that `key` has, or behind all others.
  void put(std::string_view key, GgufMetadataValue value);
  bool contains(std::string_view key) const;
  const std::vector<GgufMetadataEntry>& entries() const { return entries_; }
  // REQUIRES: the writer has none of the keys.
  void write_to(GgufWriter& writer) const;

 private:
  std::vector<GgufMetadataEntry> entries_;
};

}  // namespace llorch::engine::io
