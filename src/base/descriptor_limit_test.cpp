#include "base/descriptor_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/run_command.h"

namespace llorch::base {
namespace {

// Idle clients of a shell's 1024 descriptors would leave none for the others, and none for workers.
TEST(DescriptorLimit, IsRaisedForThisProcessAndNotForTheProgramsItStarts) {
  const pid_t child = ::fork();  // the limits of this process are of all its tests
  if (child == 0) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(2);
    limit.rlim_cur = 100;
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(3);
    raise_descriptor_limit();
    raise_descriptor_limit();
    if (descriptor_limit() != limit.rlim_max) ::_exit(4);
    const auto ended = run_command({.argv = {"/bin/sh", "-c", "test $(ulimit -Sn) = 100"}});
    ::_exit(ended && *ended == 0 ? 0 : 5);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace llorch::base
