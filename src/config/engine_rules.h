#pragma once
// What an entry of pool-managerd.engines may say of a program that is started here: how it comes here, with which arguments. Pure.
#include <optional>
#include <string>
#include <string_view>

#include "config/config.h"

namespace llorch::config {

struct BrokenRule {
  std::string field;   // below the entry: "provisioning.binary.url"
  std::string reason;  // one word
  std::string why;
};

// The first rule that `engine` breaks. Each source of a program is pinned by a checksum or a commit. On a GPU no argument may leave
// a part of a model in the host's memory: a model fits, or it does not start; on the CPU it runs where `device: cpu` says so.
std::optional<BrokenRule> broken_rule(const EngineConfig& engine);

// An entry of pool-managerd.engines, of its JSON. Errors: INVALID_PARAMS.
base::Result<EngineConfig> parse_engine(std::string_view json);

bool is_checksum(std::string_view text);  // sha256:HEX

struct PinnedPackage {
  std::string name, version;
  std::string sha256;  // hex
};
// "NAME==VERSION sha256:HEX"; absent: it is not of this form.
std::optional<PinnedPackage> parse_dependency(std::string_view text);

}  // namespace llorch::config
