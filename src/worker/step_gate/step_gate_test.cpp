#include "worker/step_gate/step_gate.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace llorch::worker {
namespace {

class StepGateTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "/step-gate-" + std::to_string(::getpid());
    std::filesystem::create_directories(directory_);
    ASSERT_EQ(::mkfifo(fifo().c_str(), 0600), 0);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::filesystem::path fifo() const { return directory_ / "gate"; }

  std::filesystem::path directory_;
};

TEST_F(StepGateTest, EveryByteLetsOneStepPassAndNobodyHoldsAnOpenGate) {
  const auto opened = StepGate::open(fifo()).value();
  StepGate& gate = *opened;
  const int holder = ::open(fifo().c_str(), O_WRONLY);
  EXPECT_TRUE(gate.may_step()) << "the self-test is not over";
  gate.close_behind_self_test();
  EXPECT_FALSE(gate.may_step());
  ASSERT_EQ(::write(holder, "..", 2), 2);
  EXPECT_TRUE(gate.may_step());
  EXPECT_TRUE(gate.may_step());
  EXPECT_FALSE(gate.may_step());
  ::close(holder);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(gate.may_step()) << "whoever held it is gone";
}

TEST_F(StepGateTest, WhatIsNoFifoIsRefused) {
  EXPECT_EQ(StepGate::open(directory_ / "nothing").error().code, base::ErrorCode::kIoError);
  std::ofstream(directory_ / "file") << "1";
  const auto refused = StepGate::open(directory_ / "file");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("no FIFO"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace llorch::worker
