#include "engine/io/gguf_metadata.h"

#include <algorithm>
#include <utility>

namespace llorch::engine::io {
namespace {

struct Put {
  GgufWriter& writer;
  const std::string& key;

  void operator()(const std::string& value) const { writer.put(key, std::string_view(value)); }
  void operator()(const std::vector<std::int32_t>& values) const { writer.put_i32s(key, values); }
  void operator()(const std::vector<float>& values) const { writer.put_f32s(key, values); }
  void operator()(const std::vector<std::string>& values) const { writer.put_strings(key, values); }
  void operator()(const GgufFlags& flags) const {
    writer.put(key, GgufArray{GgufType::kBool, flags.values.size(), std::as_bytes(std::span(flags.values))});
  }
  void operator()(const GgufValue& value) const { writer.put(key, value); }
  template <class Scalar>
  void operator()(Scalar value) const {
    writer.put(key, GgufValue(value));
  }
};

}  // namespace

void GgufMetadata::put(std::string_view key, GgufMetadataValue value) {
  const auto at = std::ranges::find(entries_, key, &GgufMetadataEntry::key);
  if (at != entries_.end()) {
    at->value = std::move(value);
  } else {
    entries_.push_back({std::string(key), std::move(value)});
  }
}

bool GgufMetadata::contains(std::string_view key) const {
  return std::ranges::find(entries_, key, &GgufMetadataEntry::key) != entries_.end();
}

void GgufMetadata::write_to(GgufWriter& writer) const {
  for (const GgufMetadataEntry& entry : entries_) std::visit(Put{writer, entry.key}, entry.value);
}

}  // namespace llorch::engine::io
