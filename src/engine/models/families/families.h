#pragma once
#include "engine/models/family.h"

namespace llorch::engine::models::families {

extern const Family kLlama;

}  // namespace llorch::engine::models::families
