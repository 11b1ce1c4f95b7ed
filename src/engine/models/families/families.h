#pragma once
// Every family, in the namespace of its file: alike as they name their parts, they compile together.
#include "engine/models/family.h"

namespace llorch::engine::models::families {

namespace apertus {
extern const Family kApertus;
}
namespace arcee {
extern const Family kArcee;
}
namespace bert {
extern const Family kBert;
}
namespace cohere {
extern const Family kCohere;
}
namespace deepseek {
extern const Family kDeepseek;
}
namespace deepseek_v32 {
extern const Family kDeepseekV32;
}
namespace deepseek_v4 {
extern const Family kDeepseekV4;
}
namespace dots1 {
extern const Family kDots1;
}
namespace ernie4_5 {
extern const Family kErnie45;
}
namespace exaone4 {
extern const Family kExaone4;
}
namespace exaone_moe {
extern const Family kExaoneMoe;
}
namespace falcon {
extern const Family kFalcon;
}
namespace gemma {
extern const Family kGemma2;
extern const Family kGemma3;
}  // namespace gemma
namespace gemma1 {
extern const Family kGemma1;
}
namespace gemma4 {
extern const Family kGemma4;
}
namespace glm4 {
extern const Family kGlm4;
}
namespace glm4_moe {
extern const Family kGlm4Moe;
}
namespace gpt2 {
extern const Family kGpt2;
}
namespace gpt_neox {
extern const Family kGptNeox;
}
namespace gpt_oss {
extern const Family kGptOss;
}
namespace granite {
extern const Family kGranite;
}
namespace granite_hybrid {
extern const Family kGraniteHybrid;
}
namespace granite_moe {
extern const Family kGraniteMoe;
}
namespace hunyuan {
extern const Family kHunyuan;
}
namespace internlm2 {
extern const Family kInternLm2;
}
namespace kimi_linear {
extern const Family kKimiLinear;
}
namespace lfm2 {
extern const Family kLfm2;
}
namespace lfm3 {
extern const Family kLfm3;
}
namespace llama {
extern const Family kLlama;
}
namespace llama4 {
extern const Family kLlama4;
}
namespace mamba2 {
extern const Family kMamba2;
}
namespace mimo_v2 {
extern const Family kMimoV2;
}
namespace minicpm3 {
extern const Family kMiniCpm3;
}
namespace minimax_m2 {
extern const Family kMiniMaxM2;
}
namespace ministral3 {
extern const Family kMinistral3;
}
namespace nemotron_h {
extern const Family kNemotronH;
}
namespace nomic_bert {
extern const Family kNomicBert;
}
namespace olmo {
extern const Family kOlmo;
}
namespace olmoe {
extern const Family kOlmoe;
}
namespace phi {
extern const Family kPhi;
}
namespace phi3 {
extern const Family kPhi3;
}
namespace phimoe {
extern const Family kPhiMoe;
}
namespace qwen {
extern const Family kQwen2;
extern const Family kQwen3;
}  // namespace qwen
namespace qwen2_moe {
extern const Family kQwen2Moe;
}
namespace qwen3_moe {
extern const Family kQwen3Moe;
}
namespace qwen3_next {
extern const Family kQwen3Next;
}
namespace qwen3_vl {
extern const Family kQwen3Vl;
}
namespace seed_oss {
extern const Family kSeedOss;
}
namespace smollm3 {
extern const Family kSmolLm3;
}
namespace stablelm {
extern const Family kStableLm;
}
namespace starcoder2 {
extern const Family kStarCoder2;
}

}  // namespace llorch::engine::models::families
