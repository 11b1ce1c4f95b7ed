#include <fmt/format.h>

#include <algorithm>

#include "engine/io/huggingface/json_events.h"
#include "engine/io/huggingface/safetensors.h"
#include "engine/io/printable.h"

namespace llorch::engine::io {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

constexpr std::string_view kSuffix = ".safetensors";

// A file of the index's own directory, by a name that cannot leave it.
bool is_plain_file_name(std::string_view name) {
  return name.size() > kSuffix.size() && name.size() <= 255 && name.ends_with(kSuffix) && is_printable_utf8(name) &&
         name.find('/') == std::string_view::npos && name.find("..") == std::string_view::npos;
}

// {"metadata": anything, "weight_map": {tensor: file}} and other keys of any kind.
class IndexEvents final : public JsonEvents {
 public:
  IndexEvents(std::string_view source, const SafetensorsLimits& limits) : source_(source), limits_(limits) {}

  std::map<std::string, std::string, std::less<>> weight_map;
  bool seen = false;

  Result<> open_object() override {
    if (in_map_) return other();
    ++depth_;
    if (depth_ != 2 || key_ != "weight_map") return {};
    if (seen) return corrupt("has two weight_maps");
    in_map_ = seen = true;
    return {};
  }
  Result<> close_object() override {
    --depth_;
    in_map_ = false;
    return {};
  }
  Result<> open_list() override {
    ++depth_;
    return other();
  }
  Result<> close_list() override {
    --depth_;
    return {};
  }
  Result<> key(std::string_view key) override {
    if (!in_map_) {
      if (depth_ == 1) key_ = key;
      return {};
    }
    tensor_ = key;
    if (!key.empty() && key.size() <= limits_.name_bytes_max && is_printable_utf8(key)) return {};
    return corrupt(fmt::format("names the tensor {}, which is not 1 to {} bytes of printable UTF-8", printable(key),
                               limits_.name_bytes_max));
  }
  Result<> string(std::string_view text) override {
    if (!in_map_) return {};
    if (!is_plain_file_name(text)) {
      return corrupt(fmt::format("has tensor {} in {}, which is no name of a .safetensors file beside it",
                                 printable(tensor_), printable(text)));
    }
    if (weight_map.emplace(tensor_, text).second) return {};
    return corrupt(fmt::format("names tensor {} twice", printable(tensor_)));
  }
  Result<> count(std::uint64_t) override { return other(); }
  Result<> other() override {
    if (!in_map_) return {};
    return corrupt(fmt::format("has no file name for tensor {}", printable(tensor_)));
  }

 private:
  tl::unexpected<base::Error> corrupt(std::string_view what) const {
    return fail(ErrorCode::kCorruptFile, fmt::format("{}: the index {}", source_, what));
  }

  std::string_view source_;
  const SafetensorsLimits& limits_;
  std::size_t depth_ = 0;
  bool in_map_ = false;
  std::string key_;     // of the outermost object
  std::string tensor_;  // of weight_map
};

}  // namespace

Result<SafetensorsIndex> SafetensorsIndex::parse(std::string_view json, std::string_view source,
                                                 const SafetensorsLimits& limits) {
  IndexEvents events(source, limits);
  TRY(walk_json(json, source, {}, events));
  if (!events.seen || events.weight_map.empty()) {
    return fail(ErrorCode::kCorruptFile, fmt::format("{}: the index has no weight_map with tensors", source));
  }
  SafetensorsIndex index;
  for (const auto& [tensor, file] : events.weight_map) index.files.push_back(file);
  std::sort(index.files.begin(), index.files.end());
  index.files.erase(std::unique(index.files.begin(), index.files.end()), index.files.end());
  for (const auto& [tensor, file] : events.weight_map) {
    const auto at = std::lower_bound(index.files.begin(), index.files.end(), file);
    index.holds.emplace(tensor, static_cast<std::uint32_t>(at - index.files.begin()));
  }
  return index;
}

}  // namespace llorch::engine::io
