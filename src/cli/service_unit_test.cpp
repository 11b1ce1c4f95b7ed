#include "cli/service_unit.h"

#include <gtest/gtest.h>

namespace llorch::cli {
namespace {

TEST(ServiceUnit, QuotesEveryArgument) {
  const std::string unit = service_unit({.start = {"/opt/my apps/llorch", "up", "--model", R"(50%-$HOME "x"\y)"},
                                         .reload = {"/opt/my apps/llorch", "--state-dir", "$x", "config", "reload"}},
                                        {}, "/home/u");
  EXPECT_NE(unit.find(R"(
ExecStart="/opt/my apps/llorch" "up" "--model" "50%%-$$HOME \"x\"\\y"
ExecReload="/opt/my apps/llorch" "--state-dir" "$$x" "config" "reload"
)"),
            std::string::npos)
      << unit;
}

TEST(ServiceUnit, QuotesEveryVariable) {
  const std::string unit = service_unit({.start = {"/llorch", "up"}, .reload = {}},
                                        {R"(LLORCH_A=50%-$HOME "x"\y)", "LLORCH_B="}, "/50% of it");
  EXPECT_NE(unit.find(R"(
WorkingDirectory=-/50%% of it
Environment="LLORCH_A=50%%-$HOME \"x\"\\y"
Environment="LLORCH_B="
ExecStart="/llorch" "up"
)"),
            std::string::npos)
      << unit;
}

TEST(ServiceUnit, StopsInOrder) {
  EXPECT_NE(service_unit({.start = {"/llorch", "up"}, .reload = {}}, {}, "/").find("\nKillMode=mixed\n"),
            std::string::npos);
}

// A GPU driver or an address that comes late, and a worker that the kernel kills for memory, stop no service for good.
TEST(ServiceUnit, OutlivesWhatPasses) {
  const std::string unit = service_unit({.start = {"/llorch", "up"}, .reload = {}}, {}, "/");
  EXPECT_NE(unit.find("\nRestartPreventExitStatus=2\n"), std::string::npos);
  EXPECT_NE(unit.find("\nRestartSec=5\n"), std::string::npos);
  EXPECT_NE(unit.find("\nOOMPolicy=continue\n"), std::string::npos);
}

}  // namespace
}  // namespace llorch::cli
