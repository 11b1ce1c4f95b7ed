#include "base/file_reads.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error_detail.h"
#include "base/log.h"

namespace llorch::base {
namespace {

using Answer = Result<std::string>;

// A file whose read does not return before let_go().
struct HeldFile {
  std::shared_ptr<std::promise<void>> begun = std::make_shared<std::promise<void>>(),
                                      gate = std::make_shared<std::promise<void>>();
  std::function<Answer()> read(std::string content) const {
    return [begun = begun, gate = gate, content = std::move(content)]() -> Answer {
      begun->set_value();
      gate->get_future().wait();
      return content;
    };
  }
  void wait_until_begun() const { begun->get_future().wait(); }
  void let_go() const { gate->set_value(); }
};

std::function<Answer()> at_once(std::string content) {
  return [content = std::move(content)]() -> Answer { return content; };
}

struct FileReadsTest : testing::Test {
  std::mutex mutex;
  std::vector<std::pair<std::int64_t, std::function<void()>>> timers;  // of what has begun

  FileReads::Options options(std::size_t reads_at_once, std::size_t files_max) {
    return {.at_once = reads_at_once,
            .files_max = files_max,
            .after =
                [this](std::int64_t delay_ms, std::function<void()> fn) {
                  const std::lock_guard lock(mutex);
                  timers.emplace_back(delay_ms, std::move(fn));
                },
            .reason = "BEING_READ",
            .stop_wait_ms = 0};
  }
  // What is due after `delay_ms` at most is called.
  void time_passes(std::int64_t delay_ms = std::numeric_limits<std::int64_t>::max()) {
    std::vector<std::pair<std::int64_t, std::function<void()>>> due;
    {
      const std::lock_guard lock(mutex);
      due.swap(timers);
      for (auto& timer : due) {
        if (timer.first > delay_ms) timers.push_back(std::move(timer));
      }
    }
    for (const auto& [delay, fn] : due) {
      if (delay <= delay_ms) fn();
    }
  }
  static std::future<Answer> ask(FileReads& reads, const std::string& file, std::function<Answer()> read) {
    const auto told = std::make_shared<std::promise<Answer>>();
    reads.read<std::string>(file, std::move(read), [told](Answer answer) { told->set_value(std::move(answer)); });
    return told->get_future();
  }
  static void expect_refused(const Answer& answer, const std::string& file) {
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::kPoolUnready);
    EXPECT_TRUE(info(answer.error().code).retriable);
    EXPECT_TRUE(has_detail(answer.error(), "reason", "BEING_READ"));
    EXPECT_TRUE(has_detail(answer.error(), "file", file));
    EXPECT_NE(answer.error().message.find(file), std::string::npos) << answer.error().message;
  }
};

TEST_F(FileReadsTest, OneThatDoesNotReturnHoldsItsOwnFileAlone) {
  const HeldFile hung;
  FileReads reads(options(1, 8));
  auto first = ask(reads, "/hung/a", hung.read("a"));
  hung.wait_until_begun();
  auto second = ask(reads, "/hung/a", at_once("never read"));
  auto other = ask(reads, "/b", at_once("b"));
  time_passes();
  EXPECT_EQ(*other.get(), "b");
  expect_refused(second.get(), "/hung/a");
  expect_refused(ask(reads, "/hung/a", at_once("never read")).get(), "/hung/a");
  EXPECT_EQ(*ask(reads, "/c", at_once("c")).get(), "c") << "and nobody waits for time to pass once more";
  hung.let_go();
  EXPECT_EQ(*first.get(), "a");
  EXPECT_EQ(*ask(reads, "/b", at_once("b again")).get(), "b again");
}

TEST_F(FileReadsTest, WhoAsksFirstIsAnsweredInTheEndToo) {
  const HeldFile hung;
  FileReads::Options patient = options(1, 8);
  patient.refuse_ms = 1;
  FileReads reads(patient);
  auto first = ask(reads, "/hung/a", hung.read("a"));
  hung.wait_until_begun();
  time_passes();
  expect_refused(first.get(), "/hung/a");
  expect_refused(ask(reads, "/hung/a", at_once("never read")).get(), "/hung/a");
  auto other = ask(reads, "/b", at_once("b"));
  EXPECT_EQ(*other.get(), "b");
  hung.let_go();
}

// A disk that wakes up: what waits for its file is answered, and other files do not wait meanwhile.
TEST_F(FileReadsTest, WhoAsksForASlowFileWaitsUntilThatTakesTooLong) {
  const HeldFile slow, hung;
  FileReads::Options patient = options(1, 8);
  patient.slow_ms = 1;
  patient.refuse_ms = 2;
  FileReads reads(patient);
  auto first = ask(reads, "/slow", slow.read("a"));
  slow.wait_until_begun();
  auto before = ask(reads, "/slow", at_once("b"));
  time_passes(1);
  auto behind = ask(reads, "/slow", at_once("c"));
  EXPECT_EQ(*ask(reads, "/other", at_once("d")).get(), "d");
  slow.let_go();
  EXPECT_EQ(*first.get(), "a");
  EXPECT_EQ(*before.get(), "b");
  EXPECT_EQ(*behind.get(), "c");
  auto never = ask(reads, "/hung", hung.read("e"));
  hung.wait_until_begun();
  auto waits = ask(reads, "/hung", at_once("never read"));
  time_passes();
  expect_refused(never.get(), "/hung");
  expect_refused(waits.get(), "/hung");
  hung.let_go();
}

// A large file of a healthy disk: others wait for it, as their reads would take from its own.
TEST_F(FileReadsTest, OneThatMakesProgressKeepsItsPlaceAndWhoWaitsForIt) {
  std::promise<void> begun, gate;
  FileReads reads(options(1, 8));
  std::shared_future<void> opened = gate.get_future().share();
  auto first = ask(reads, "/large", [&begun, opened]() -> Answer {
    FileReads::progressed();
    begun.set_value();
    opened.wait();
    return "a";
  });
  begun.get_future().wait();
  auto waits = ask(reads, "/large", at_once("never read"));
  auto other = ask(reads, "/other", at_once("b"));
  time_passes();
  EXPECT_EQ(waits.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(other.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  time_passes();
  expect_refused(waits.get(), "/large");
  EXPECT_EQ(*other.get(), "b");
  gate.set_value();
  EXPECT_EQ(*first.get(), "a");
  FileReads::progressed();  // outside of reads
}

TEST_F(FileReadsTest, BesideOneThatHangsOthersNeedNoTimeToPass) {
  const HeldFile hung;
  FileReads reads(options(2, 8));
  auto first = ask(reads, "/hung/a", hung.read("a"));
  hung.wait_until_begun();
  for (const char* file : {"/b", "/c", "/d"}) EXPECT_EQ(*ask(reads, file, at_once(file)).get(), file);
  hung.let_go();
  EXPECT_EQ(*first.get(), "a");
}

TEST_F(FileReadsTest, FilesThatHangAreBounded) {
  const HeldFile hung[2];
  FileReads reads(options(1, 2));
  auto first = ask(reads, "/hung/0", hung[0].read("0"));
  hung[0].wait_until_begun();
  auto next = ask(reads, "/hung/1", hung[1].read("1"));
  time_passes();
  hung[1].wait_until_begun();
  auto waits = ask(reads, "/b", at_once("never read"));
  std::vector<std::string> lines;
  capture_log_lines([&](std::string_view line) { lines.emplace_back(line); });
  time_passes();
  capture_log_lines({});
  expect_refused(waits.get(), "/b");
  const Answer refused = ask(reads, "/c", at_once("never read")).get();
  expect_refused(refused, "/c");
  EXPECT_TRUE(FileReads::is_for_others(refused.error()));
  EXPECT_FALSE(FileReads::is_for_others(ask(reads, "/hung/0", at_once("never read")).get().error()));
  EXPECT_EQ(refused.error().message.find("/hung"), std::string::npos)
      << "names of files of others are nobody's to read";
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE(lines[1].find("/hung/0, /hung/1"), std::string::npos) << lines[1];
  hung[0].let_go();
  EXPECT_EQ(*first.get(), "0");
  hung[1].let_go();
  EXPECT_EQ(*next.get(), "1");
}

TEST_F(FileReadsTest, ReadsOfOneFileAreInOrder) {
  const HeldFile held;
  FileReads reads(options(4, 8));
  std::vector<int> order;  // by one thread after the other
  const auto read = [&](int i) {
    return [&order, i]() -> Answer {
      order.push_back(i);
      return std::to_string(i);
    };
  };
  auto first = ask(reads, "/a", held.read("0"));
  held.wait_until_begun();
  auto second = ask(reads, "/a", read(1)), third = ask(reads, "/a", read(2));
  EXPECT_EQ(*ask(reads, "/b", at_once("b")).get(), "b");
  held.let_go();
  EXPECT_EQ(*first.get(), "0");
  EXPECT_EQ(*second.get(), "1");
  EXPECT_EQ(*third.get(), "2");
  EXPECT_EQ(order, (std::vector{1, 2}));
}

TEST_F(FileReadsTest, StopWaitsForNoneThatHangsAndDropsWhoWaits) {
  const HeldFile hung;
  const auto asker = std::make_shared<int>(0);
  const auto owned = std::make_shared<std::promise<void>>();
  std::future<void> gone;
  {
    FileReads reads(options(1, 8));
    // Of the read: it goes when the thread lets go of it, which is behind the end of `reads`.
    auto end = std::make_shared<std::promise<void>>();
    gone = end->get_future();
    std::shared_ptr<void> until(nullptr, [end](void*) { end->set_value(); });
    reads.read<std::string>(
        "/hung/a", [read = hung.read("a"), until] { return read(); },
        [asker](const Answer&) { ADD_FAILURE() << "behind stop()"; });
    until.reset();
    hung.wait_until_begun();
    reads.read<std::string>("/hung/a", at_once("a"), [asker](const Answer&) { ADD_FAILURE() << "behind stop()"; });
  }
  EXPECT_EQ(asker.use_count(), 1);
  hung.let_go();
  gone.wait();
}

TEST_F(FileReadsTest, AnExceptionEndsTheReadItWasThrownIn) {
  std::vector<std::string> lines;
  capture_log_lines([&](std::string_view line) { lines.emplace_back(line); });
  const auto asker = std::make_shared<std::promise<void>>();
  FileReads reads(options(1, 8));
  auto dropped = asker->get_future();
  std::shared_ptr<void> until(nullptr, [asker](void*) { asker->set_value(); });
  reads.read<std::string>(
      "/a", []() -> Answer { throw std::length_error("what a file says"); }, [until](const Answer&) { ADD_FAILURE(); });
  until.reset();
  dropped.wait();
  EXPECT_EQ(*ask(reads, "/a", at_once("a")).get(), "a");
  capture_log_lines({});
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find(R"("type":"std::length_error")"), std::string::npos) << lines[0];
  EXPECT_EQ(lines[0].find("what a file says"), std::string::npos) << lines[0];
}

}  // namespace
}  // namespace llorch::base
