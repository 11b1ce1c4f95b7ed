#include "engine/models/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

namespace llorch::engine::models {
namespace {

constexpr std::size_t kNamesShownMax = 5;

std::string first_names(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamesShownMax); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kNamesShownMax) text += fmt::format(" and {} more", names.size() - kNamesShownMax);
  return text;
}

// Calls visit(name) for each layer of a pattern, or once when it is global.
template <class Visit>
void for_each_name(std::string_view pattern, std::uint32_t layers, Visit&& visit) {
  const std::uint32_t count = pattern.find("{}") == std::string_view::npos ? 1 : layers;
  for (std::uint32_t layer = 0; layer < count; ++layer) visit(tensor_name(pattern, layer));
}

}  // namespace

std::string tensor_name(std::string_view pattern, std::uint32_t layer) {
  const std::size_t at = pattern.find("{}");
  if (at == std::string_view::npos) return std::string(pattern);
  return fmt::format("{}{}{}", pattern.substr(0, at), layer, pattern.substr(at + 2));
}

std::optional<ResolvedWeight> resolve_weight(const io::GgufFile& file, const Family& family,
                                             const contract::WeightKey& key) {
  const auto row = std::ranges::find_if(family.weights, [&](const WeightName& name) {
    return name.opcode == key.opcode && name.slot == key.slot && name.variant == key.variant;
  });
  if (row == family.weights.end()) return std::nullopt;
  const auto number = [&](const io::GgufTensor* tensor) {
    return static_cast<std::uint32_t>(tensor - file.tensors().data());
  };
  if (const io::GgufTensor* tensor = file.find_tensor(tensor_name(row->gguf, key.layer)))
    return ResolvedWeight{number(tensor)};
  if (row->gguf_fallback.empty()) return std::nullopt;
  const io::GgufTensor* tensor = file.find_tensor(tensor_name(row->gguf_fallback, key.layer));
  return tensor == nullptr ? std::nullopt : std::optional(ResolvedWeight{number(tensor), true});
}

base::Result<> check_tensor_names(const io::GgufFile& file, const Family& family, std::uint32_t layers) {
  std::set<std::string, std::less<>> known;
  std::vector<std::string> missing;
  for (const WeightName& row : family.weights) {
    for_each_name(row.gguf, layers, [&](std::string name) {
      const bool found = file.find_tensor(name) != nullptr ||
                         (!row.gguf_fallback.empty() && file.find_tensor(row.gguf_fallback) != nullptr);
      if (row.required && !found) missing.push_back(name);
      known.insert(std::move(name));
    });
  }
  for (std::span<const std::string_view> list : {family.claimed, family.ignored}) {
    for (std::string_view pattern : list) {
      for_each_name(pattern, layers, [&](std::string name) { known.insert(std::move(name)); });
    }
  }
  if (!missing.empty()) {
    return base::fail(
        base::ErrorCode::kMissingWeight,
        fmt::format("{}: {} required tensor(s) are missing: {}", file.source(), missing.size(), first_names(missing)));
  }
  std::vector<std::string> unclaimed;
  for (const io::GgufTensor& tensor : file.tensors()) {
    if (!known.contains(tensor.name)) unclaimed.emplace_back(tensor.name);
  }
  if (unclaimed.empty()) return {};
  return base::fail(base::ErrorCode::kUnclaimedWeight,
                    fmt::format("{}: architecture {} with {} layers has no use for {} tensor(s): {}", file.source(),
                                family.architecture, layers, unclaimed.size(), first_names(unclaimed)));
}

}  // namespace llorch::engine::models
