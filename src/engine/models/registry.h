#pragma once
#include <string_view>

#include "engine/io/gguf.h"
#include "engine/models/family.h"

namespace llorch::engine::models {

// The family of a file's general.architecture. Errors: CONFIG_KEY_MISSING, UNKNOWN_ARCHITECTURE (listing what is known).
base::Result<const Family*> find_family(const io::GgufFile& file);

}  // namespace llorch::engine::models
