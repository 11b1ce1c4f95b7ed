#pragma once
#include "engine/models/family.h"

namespace llorch::engine::models::families {

extern const Family kLlama;
extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kPhi3;
extern const Family kGemma2;
extern const Family kGemma3;

}  // namespace llorch::engine::models::families
