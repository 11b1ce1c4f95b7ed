#pragma once
#include <span>

#include "base/result.h"
#include "engine/io/model_files.h"
#include "engine/models/family.h"

namespace llorch::engine::models {

// Every family there is, in the order of the table in docs/internals/families.md.
std::span<const Family* const> known_families();

// The family of a file's general.architecture or a directory's model_type.
// Errors: CONFIG_KEY_MISSING, UNKNOWN_ARCHITECTURE (listing what is known).
base::Result<const Family*> find_family(const io::ModelFiles& files);

}  // namespace llorch::engine::models
