#include "engine/models/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/models/config/hf_keys.h"
#include "engine/models/families/families.h"

namespace llorch::engine::models {
namespace {

constexpr std::array kFamilies{&families::llama::kLlama,
                               &families::qwen::kQwen2,
                               &families::qwen::kQwen3,
                               &families::qwen3_moe::kQwen3Moe,
                               &families::phi3::kPhi3,
                               &families::gemma::kGemma2,
                               &families::gemma::kGemma3,
                               &families::gpt_oss::kGptOss,
                               &families::granite_hybrid::kGraniteHybrid,
                               &families::mamba2::kMamba2,
                               &families::lfm2::kLfm2,
                               &families::deepseek::kDeepseek,
                               &families::qwen3_vl::kQwen3Vl,
                               &families::smollm3::kSmolLm3,
                               &families::seed_oss::kSeedOss,
                               &families::glm4_moe::kGlm4Moe,
                               &families::granite::kGranite,
                               &families::olmo::kOlmo,
                               &families::minimax_m2::kMiniMaxM2,
                               &families::ministral3::kMinistral3,
                               &families::mimo_v2::kMimoV2,
                               &families::llama4::kLlama4,
                               &families::nemotron_h::kNemotronH,
                               &families::lfm3::kLfm3,
                               &families::qwen2_moe::kQwen2Moe,
                               &families::qwen3_next::kQwen3Next,
                               &families::starcoder2::kStarCoder2,
                               &families::cohere::kCohere,
                               &families::stablelm::kStableLm,
                               &families::exaone4::kExaone4,
                               &families::ernie4_5::kErnie45,
                               &families::hunyuan::kHunyuan,
                               &families::apertus::kApertus,
                               &families::bert::kBert,
                               &families::nomic_bert::kNomicBert,
                               &families::gemma4::kGemma4,
                               &families::kimi_linear::kKimiLinear,
                               &families::deepseek_v32::kDeepseekV32,
                               &families::deepseek_v4::kDeepseekV4,
                               &families::gemma1::kGemma1,
                               &families::glm4::kGlm4,
                               &families::arcee::kArcee,
                               &families::olmoe::kOlmoe,
                               &families::granite_moe::kGraniteMoe,
                               &families::dots1::kDots1,
                               &families::exaone_moe::kExaoneMoe,
                               &families::minicpm3::kMiniCpm3,
                               &families::gpt_neox::kGptNeox,
                               &families::internlm2::kInternLm2,
                               &families::falcon::kFalcon,
                               &families::gpt2::kGpt2,
                               &families::phi::kPhi,
                               &families::phimoe::kPhiMoe};

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
