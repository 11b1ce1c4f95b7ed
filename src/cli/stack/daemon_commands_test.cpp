#include "cli/stack/daemon_commands.h"

#include <gtest/gtest.h>

namespace llorch::cli::stack {
namespace {

TEST(DaemonCommands, AreThoseOfWhoeverStartsTheDaemons) {
  EXPECT_FALSE(systemd_starts_daemons()) << "a build directory is no installed package";
  EXPECT_EQ(start_command(false), "llorch up (or llorch up --cpu on a machine without an NVIDIA GPU)");
  EXPECT_EQ(start_command(true), "sudo systemctl start orchestratord pool-managerd");
  EXPECT_EQ(logs_command("", false), "llorch logs");
  EXPECT_EQ(logs_command("pool-managerd", false), "llorch logs pool-managerd");
  EXPECT_EQ(logs_command("", true), "journalctl -u orchestratord -u pool-managerd");
  EXPECT_EQ(logs_command("pool-managerd", true), "journalctl -u pool-managerd");
}

}  // namespace
}  // namespace llorch::cli::stack
