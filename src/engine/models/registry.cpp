#include "engine/models/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/models/config/hf_keys.h"
#include "engine/models/families/families.h"

namespace llorch::engine::models {
namespace {

constexpr std::array kFamilies{
    &families::kLlama,         &families::kQwen2,       &families::kQwen3,      &families::kQwen3Moe,
    &families::kPhi3,          &families::kGemma2,      &families::kGemma3,     &families::kGptOss,
    &families::kGraniteHybrid, &families::kMamba2,      &families::kLfm2,       &families::kDeepseek,
    &families::kQwen3Vl,       &families::kSmolLm3,     &families::kSeedOss,    &families::kGlm4Moe,
    &families::kGranite,       &families::kOlmo,        &families::kMiniMaxM2,  &families::kMinistral3,
    &families::kMimoV2,        &families::kLlama4,      &families::kNemotronH,  &families::kLfm3,
    &families::kQwen2Moe,      &families::kQwen3Next,   &families::kStarCoder2, &families::kCohere,
    &families::kStableLm,      &families::kExaone4,     &families::kErnie45,    &families::kHunyuan,
    &families::kApertus,       &families::kBert,        &families::kNomicBert,  &families::kGemma4,
    &families::kKimiLinear,    &families::kDeepseekV32, &families::kDeepseekV4};

}  // namespace

std::span<const Family* const> known_families() { return kFamilies; }

base::Result<const Family*> find_family(const io::ModelFiles& files) {
  const bool is_gguf = files.gguf() != nullptr;
  const std::string_view key = is_gguf ? "general.architecture" : "model_type";
  const std::string_view name = TRY(is_gguf ? files.gguf()->string(key) : text_model_type(*files.hf()));
  std::string known;
  for (const Family* family : kFamilies) {
    const std::span<const std::string_view> names = is_gguf ? family->gguf : family->hf;
    if (std::ranges::find(names, name) != names.end()) return family;
    for (std::string_view other : names) known += fmt::format("{}{}", known.empty() ? "" : ", ", other);
  }
  return base::fail(base::ErrorCode::kUnknownArchitecture,
                    fmt::format("{}: {} is '{}'; this build knows {}", files.source(), key, name, known));
}

}  // namespace llorch::engine::models
