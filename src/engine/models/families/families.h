#pragma once
#include "engine/models/family.h"

namespace llorch::engine::models::families {

extern const Family kLlama;
extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kPhi3;
extern const Family kGemma2;
extern const Family kGemma3;
extern const Family kQwen3Moe;
extern const Family kGptOss;
extern const Family kGraniteHybrid;
extern const Family kMamba2;
extern const Family kLfm2;
extern const Family kDeepseek;
extern const Family kQwen3Vl;
extern const Family kSmolLm3;
extern const Family kSeedOss;
extern const Family kGlm4Moe;
extern const Family kGranite;
extern const Family kOlmo;
extern const Family kMiniMaxM2;
extern const Family kMinistral3;
extern const Family kMimoV2;
extern const Family kLlama4;
extern const Family kNemotronH;
extern const Family kLfm3;
extern const Family kQwen2Moe;
extern const Family kQwen3Next;
extern const Family kStarCoder2;
extern const Family kCohere;
extern const Family kStableLm;
extern const Family kExaone4;
extern const Family kErnie45;
extern const Family kHunyuan;
extern const Family kApertus;
extern const Family kBert;
extern const Family kNomicBert;
extern const Family kGemma4;
extern const Family kKimiLinear;
extern const Family kDeepseekV32;
extern const Family kDeepseekV4;

}  // namespace llorch::engine::models::families
