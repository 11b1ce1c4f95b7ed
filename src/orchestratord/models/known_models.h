#pragma once
// Models that can be pulled by name: known_models.json beside this file, and files of the configuration.
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "wire/catalog.h"

namespace llorch::orchestratord::models {

// The text of known_models.json.
std::string_view known_models_json();

// Those that come along, then those of `files`, which replace models of the same name. Errors: CONFIG_INVALID, IO_ERROR.
base::Result<std::vector<wire::KnownModel>> load_known_models(const std::vector<std::string>& files);

}  // namespace llorch::orchestratord::models
