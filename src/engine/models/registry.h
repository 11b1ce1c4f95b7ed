#pragma once
#include "base/result.h"
#include "engine/io/model_files.h"
#include "engine/models/family.h"

namespace llorch::engine::models {

// The family of a file's general.architecture or a directory's model_type.
// Errors: CONFIG_KEY_MISSING, UNKNOWN_ARCHITECTURE (listing what is known).
base::Result<const Family*> find_family(const io::ModelFiles& files);

}  // namespace llorch::engine::models
