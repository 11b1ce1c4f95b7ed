#include "orchestratord/core/jobs/job.h"

#include <gtest/gtest.h>

#include <set>

namespace llorch::orchestratord::core::jobs {
namespace {

using wire::JobStatus;

constexpr JobStatus kAll[] = {JobStatus::kQueued,    JobStatus::kDispatched, JobStatus::kRunning,
                              JobStatus::kCompleted, JobStatus::kFailed,     JobStatus::kCancelled};

// HME-021
TEST(OnTimeProbability, IsThePartOfTheTokensThatFit) {
  EXPECT_EQ(on_time_probability(100, 10, 500), 0.5);
  EXPECT_EQ(on_time_probability(100, 10, 1000), 1);
  EXPECT_EQ(on_time_probability(100, 10, 5000), 1);
  EXPECT_EQ(on_time_probability(100, 10, -5), 0);
  EXPECT_EQ(on_time_probability(0, 10, 1), 1);
  EXPECT_EQ(on_time_probability(0, 10, -1), 0);
}

// SCHED-11031, SYS-6.1.2: the legal transitions, each pair checked.
TEST(JobTransitions, TableIsExactlyTheDocumentedOne) {
  const std::set<std::pair<JobStatus, JobStatus>> legal{
      {JobStatus::kQueued, JobStatus::kDispatched},    {JobStatus::kQueued, JobStatus::kFailed},
      {JobStatus::kQueued, JobStatus::kCancelled},     {JobStatus::kDispatched, JobStatus::kRunning},
      {JobStatus::kDispatched, JobStatus::kQueued},    {JobStatus::kDispatched, JobStatus::kFailed},
      {JobStatus::kDispatched, JobStatus::kCancelled}, {JobStatus::kDispatched, JobStatus::kCompleted},
      {JobStatus::kRunning, JobStatus::kQueued},       {JobStatus::kRunning, JobStatus::kCompleted},
      {JobStatus::kRunning, JobStatus::kFailed},       {JobStatus::kRunning, JobStatus::kCancelled}};
  for (const JobStatus from : kAll) {
    for (const JobStatus to : kAll) {
      EXPECT_EQ(is_legal(from, to), legal.contains({from, to}))
          << static_cast<int>(from) << " -> " << static_cast<int>(to);
    }
  }
}

TEST(JobTransitions, NothingLeavesATerminalState) {
  for (const JobStatus from : kAll) {
    for (const JobStatus to : kAll) {
      if (wire::is_terminal(from)) {
        EXPECT_FALSE(is_legal(from, to));
      }
    }
  }
}

TEST(CancelReasons, HaveTheWordsOfTheMetric) {
  EXPECT_EQ(name(CancelReason::kClientRequest), "client_request");
  EXPECT_EQ(name(CancelReason::kDisconnect), "disconnect");
  EXPECT_EQ(name(CancelReason::kTimeout), "timeout");
  EXPECT_EQ(name(CancelReason::kAdmin), "admin");
  EXPECT_EQ(name(CancelReason::kStreamMemory), "stream_memory");
}

}  // namespace
}  // namespace llorch::orchestratord::core::jobs
