#include "pool_managerd/task_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/log.h"

namespace llorch::pool_managerd {
namespace {

TEST(TaskThread, AnExceptionEndsTheTaskItWasThrownIn) {
  std::vector<std::string> lines;
  base::capture_log_lines([&](std::string_view line) { lines.emplace_back(line); });
  const auto held = std::make_shared<int>(0);
  TaskThread thread;
  thread.post([held] { throw std::length_error("what a file says"); });
  std::promise<void> next;
  thread.post([&] { next.set_value(); });
  next.get_future().wait();
  base::capture_log_lines({});
  EXPECT_EQ(held.use_count(), 1);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find(R"("event":"task.failed")"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find(R"("type":"std::length_error")"), std::string::npos) << lines[0];
  EXPECT_EQ(lines[0].find("what a file says"), std::string::npos) << lines[0];
}

}  // namespace
}  // namespace llorch::pool_managerd
