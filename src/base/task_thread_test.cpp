#include "base/task_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/log.h"

namespace llorch::base {
namespace {

TEST(TaskThread, AnExceptionEndsTheTaskItWasThrownIn) {
  std::vector<std::string> lines;
  capture_log_lines([&](std::string_view line) { lines.emplace_back(line); });
  const auto held = std::make_shared<int>(0);
  TaskThread thread;
  thread.post([held] { throw std::length_error("what a file says"); });
  std::promise<void> next;
  thread.post([&] { next.set_value(); });
  next.get_future().wait();
  capture_log_lines({});
  EXPECT_EQ(held.use_count(), 1);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find(R"("event":"task.failed")"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find(R"("type":"std::length_error")"), std::string::npos) << lines[0];
  EXPECT_EQ(lines[0].find("what a file says"), std::string::npos) << lines[0];
}

TEST(TaskThread, RunsInOrderAndBoundsWhatWaits) {
  std::vector<int> done;
  {
    std::promise<void> begun;
    std::promise<void> gate;
    std::promise<void> ended;
    TaskThread thread(2);
    ASSERT_TRUE(thread.post([&] {
      begun.set_value();
      gate.get_future().wait();
      done.push_back(0);
    }));
    begun.get_future().wait();
    EXPECT_TRUE(thread.post([&] { done.push_back(1); }));
    EXPECT_TRUE(thread.post([&] {
      done.push_back(2);
      ended.set_value();
    }));
    EXPECT_FALSE(thread.post([&] { done.push_back(3); }));
    gate.set_value();
    ended.get_future().wait();
    thread.stop();
    EXPECT_FALSE(thread.post([&] { done.push_back(4); }));
  }
  EXPECT_EQ(done, (std::vector<int>{0, 1, 2}));
}

TEST(TaskThread, WhatWasHeldUpIsDoneOnce) {
  int done = 0;
  std::promise<void> begun, gate;
  TaskThread thread;
  const auto post = posts_one_at_a_time(thread, [&] { ++done; });
  const auto wait_for_all = [&] {
    std::promise<void> reached;
    thread.post([&] { reached.set_value(); });
    reached.get_future().wait();
  };
  thread.post([&] {
    begun.set_value();
    gate.get_future().wait();
  });
  begun.get_future().wait();
  for (int i = 0; i < 1000; ++i) post();
  gate.set_value();
  wait_for_all();
  EXPECT_EQ(done, 1);
  post();
  wait_for_all();
  EXPECT_EQ(done, 2) << "and again when it is over";
}

}  // namespace
}  // namespace llorch::base
