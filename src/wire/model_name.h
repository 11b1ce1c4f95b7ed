#pragma once
// Names of models: in models.aliases of the configuration, and those that are given at run time.
#include <string>
#include <string_view>

namespace llorch::wire {

// Whether it can be the name of a model: 1 to 128 of A-Z, a-z, 0-9, dot, underscore, dash and colon, that begin with no dot
// and with no scheme of a reference ("hf:").
bool is_model_name(std::string_view text);
// The name nearest to `text`, such as that of a file: what no name can have becomes a dash. "model" where nothing is left.
std::string model_name_from(std::string_view text);

}  // namespace llorch::wire
