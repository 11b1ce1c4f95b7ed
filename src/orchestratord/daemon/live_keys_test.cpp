#include "orchestratord/daemon/live_keys.h"

#include <gtest/gtest.h>

namespace llorch::orchestratord::daemon {
namespace {

using Keys = std::vector<std::string>;

// What counts at once is taken over; the rest is named once more each time, for it never was.
TEST(LiveKeys, CallersAndTheirLimitsCountAtOnce) {
  const config::Config running;
  config::Config loaded;
  loaded.auth.token_file = "/token";
  loaded.auth.reader_token_files = {"/reader"};
  loaded.auth.optional_on_loopback = true;
  loaded.orchestratord.tenants = {{.id = "a", .token_file = "/a", .throttle = {}, .quotas = {}}};
  loaded.orchestratord.throttle.requests_per_second = 3;
  loaded.orchestratord.quotas.token_budget_daily = 4;
  loaded.orchestratord.bind = "0.0.0.0:8080";
  loaded.models.aliases["a"] = "file:/a.gguf";
  loaded.pool_managerd.pool_id = "another daemon's";
  loaded.devices.allow_cpu = true;
  const Changes changes = changes_between(running, loaded);
  EXPECT_EQ(changes.applied,
            (Keys{"orchestratord.throttle.requests_per_second", "orchestratord.quotas.token_budget_daily",
                  "orchestratord.tenants", "auth.token_file", "auth.optional_on_loopback", "auth.reader_token_files"}));
  EXPECT_EQ(changes.left, (Keys{"orchestratord.bind", "models.aliases"}));
  const config::Config next = with_callers_of(running, loaded);
  EXPECT_EQ(next.orchestratord.tenants.size(), 1U);
  EXPECT_EQ(next.orchestratord.bind, running.orchestratord.bind);
  EXPECT_TRUE(changes_between(next, loaded).applied.empty());
  EXPECT_EQ(changes_between(next, loaded).left, changes.left);
}

}  // namespace
}  // namespace llorch::orchestratord::daemon
