#pragma once
#include <functional>
#include <string>
#include <vector>

namespace llorch::config {

// The variables of the environment that load_config() reads and that are set, as NAME=value, in the order of the keys.
std::vector<std::string> settings_in_environment(const std::function<const char*(const char*)>& getenv);

}  // namespace llorch::config
