// SIGKILL in the middle of commits: what a client was told is what a restart finds.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "orchestratord/store/testing/store_bed.h"

namespace llorch::orchestratord::store {
namespace {

class StoreCrashTest : public EveryStore {};
INSTANTIATE_TEST_SUITE_P(Kinds, StoreCrashTest, ::testing::Values(StoreKind::kSqlite, StoreKind::kPostgresql), name_of);

// One line per fact that a client could have been told.
void report(int pipe, char kind, int number) {
  char line[16];
  const int bytes = std::snprintf(line, sizeof line, "%c%09d\n", kind, number);
  if (::write(pipe, line, static_cast<std::size_t>(bytes)) != bytes) ::_exit(3);
}

// Admits jobs as fast as it can, from two threads, and finishes every third; never returns.
[[noreturn]] void commit_for_ever(const StoreBed& bed, int pipe, int first) {
  auto store = bed.open();
  std::atomic<int> next{first};
  const auto work = [&] {
    while (true) {
      const int number = next++;
      const std::string id = "job-" + std::to_string(number);
      if (!admit(*store, admission(id, "payload of " + id))) ::_exit(4);
      report(pipe, 'A', number);
      if (number % 3 != 0) continue;
      if (!apply(*store, finished(id))) ::_exit(5);
      report(pipe, 'F', number);
    }
  };
  std::thread other(work);
  work();
  ::_exit(0);
}

struct Told {
  std::set<int> admitted, finished;
};

// Reads until `reports_min` came, or the writer is gone.
void read_reports(int pipe, std::size_t reports_min, Told& told) {
  constexpr std::size_t kBytes = 11;
  std::string text;
  char buffer[300 * kBytes];  // whole reports: each is written at once
  ssize_t n = 0;
  while (text.size() < reports_min * kBytes && (n = ::read(pipe, buffer, sizeof buffer)) > 0)
    text.append(buffer, static_cast<std::size_t>(n));
  for (std::size_t at = 0; at + kBytes <= text.size(); at += kBytes) {
    (text[at] == 'A' ? told.admitted : told.finished).insert(std::stoi(text.substr(at + 1, 9)));
  }
}

// SYS-6.1.3: nothing committed is lost by a kill, nothing finished comes back, no key of a finished job remains.
TEST_P(StoreCrashTest, EveryReportedCommitIsThereAfterAKill) {
  const StoreBed bed(GetParam());
  Told told;
  for (int round = 0; round < 20; ++round) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) commit_for_ever(bed, pipe[1], round * 1'000'000);
    ::close(pipe[1]);
    // How many commits it gets is held by their number, not by a time in which a busy machine makes few.
    read_reports(pipe[0], 4 + 3 * static_cast<std::size_t>(round % 5), told);
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 8));  // somewhere within the next ones
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "exit code " << WEXITSTATUS(status);
    read_reports(pipe[0], SIZE_MAX / 16, told);
    ::close(pipe[0]);

    auto store = bed.open();
    std::set<int> live;
    for (const auto& job : live_jobs(*store)) {
      const int number = std::stoi(job.job.job_id.value.substr(4));
      live.insert(number);
      EXPECT_FALSE(told.finished.contains(number)) << "a finished job came back";
      EXPECT_EQ(job.payload, "payload of " + job.job.job_id.value);
    }
    for (const int number : told.admitted) {
      if (live.contains(number)) continue;
      const auto job = find(*store, "job-" + std::to_string(number)).value();
      ASSERT_TRUE(job) << "job-" << number << " was accepted and is lost";
      EXPECT_TRUE(wire::is_terminal(job->progress.status));
    }
    const std::string keys = key_file_bytes(bed.dir);
    std::size_t used = 0;
    for (std::size_t at = 0; at < keys.size(); at += payload::kKeyBytes) {
      used += keys.find_first_not_of('\0', at) < at + payload::kKeyBytes;
    }
    EXPECT_EQ(used, live.size()) << "a key without a live job, or the reverse";
  }
  EXPECT_GT(told.admitted.size(), 20u) << "the rounds were too short to show anything";
  EXPECT_GT(told.finished.size(), 5u);
}

}  // namespace
}  // namespace llorch::orchestratord::store
