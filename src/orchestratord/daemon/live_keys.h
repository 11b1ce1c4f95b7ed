#pragma once
// Which keys of the configuration count while orchestratord serves, and which from its next start on. Pure.
#include <string>
#include <vector>

#include "config/config.h"

namespace llorch::orchestratord::daemon {

struct Changes {
  std::vector<std::string> applied, left;  // dotted keys: those that count at once, and those that need a restart
};
// Without those that orchestratord does not read.
Changes changes_between(const config::Config& running, const config::Config& loaded);
// `running` with the keys of `loaded` that count at once.
config::Config with_callers_of(config::Config running, const config::Config& loaded);

}  // namespace llorch::orchestratord::daemon
