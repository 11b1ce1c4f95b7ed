#pragma once
// The catalogue of engines that llama-orch knows how to install: known_engines.json.
#include <optional>
#include <string>
#include <string_view>

#include "config/config.h"

namespace llorch::adapter::setup {

std::string_view known_engines_json();

struct KnownEngine {
  std::string id;  // "llama.cpp"
  std::string about, licence;
  config::EngineConfig entry;  // its command has {model}, {context} and {slots} besides {engine} and {port}
};
// For a device, "cpu" or "gpu"; absent: none. ASSERTs that the catalogue is well formed: it comes along.
std::optional<KnownEngine> known_engine(std::string_view id, std::string_view device);

// Replaces `{name}` in every argument of the command.
void fill_in(config::EngineConfig& entry, std::string_view name, std::string_view value);

}  // namespace llorch::adapter::setup
