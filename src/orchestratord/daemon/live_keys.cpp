#include "orchestratord/daemon/live_keys.h"

#include <algorithm>

namespace llorch::orchestratord::daemon {

config::Config with_callers_of(config::Config running, const config::Config& loaded) {
  running.auth = loaded.auth;
  running.orchestratord.throttle = loaded.orchestratord.throttle;
  running.orchestratord.quotas = loaded.orchestratord.quotas;
  running.orchestratord.tenants = loaded.orchestratord.tenants;
  return running;
}

Changes changes_between(const config::Config& running, const config::Config& loaded) {
  config::Config read = loaded;
  read.pool_managerd = running.pool_managerd;
  read.devices = running.devices;
  const config::Config next = with_callers_of(running, read);
  return {.applied = config::changed_keys(running, next), .left = config::changed_keys(next, read)};
}

}  // namespace llorch::orchestratord::daemon
