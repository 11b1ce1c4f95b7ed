#include "cli/stack/log_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/rotating_file.h"

namespace llorch::cli::stack {
namespace {

class Logs : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void append(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name, std::ios::app | std::ios::binary) << text;
  }
  static std::vector<std::string> all(LogReader& reader) {
    std::vector<std::string> out;
    while (auto line = reader.next()) out.push_back(*line);
    return out;
  }

  const std::filesystem::path directory_ =
      std::filesystem::temp_directory_path() / ("llorch_log_reader_" + std::to_string(::getpid()));
};

using Lines = std::vector<std::string>;

TEST_F(Logs, RotatedFilesComeFirst) {
  append("d.log.2", "one\n");
  append("d.log.1", "two\n");
  append("d.log", "three\nfo");
  LogReader reader(directory_ / "d.log");
  EXPECT_EQ(all(reader), (Lines{"one", "two", "three"}));
  append("d.log", "ur\n");
  EXPECT_EQ(all(reader), (Lines{"four"}));
  append("d.log", "unfinished");
  EXPECT_EQ(all(reader), Lines{});
  EXPECT_EQ(reader.take_rest(), "unfinished");
  EXPECT_EQ(reader.take_rest(), "");
}

// Read while it is written and rotated, at every pace: each line once, in order.
TEST_F(Logs, NoLineIsLostOrTwiceAcrossRotations) {
  for (const int pace : {1, 2, 5, 17}) {
    TearDown();
    SetUp();
    base::RotatingFile file(directory_ / "d.log", {.file_bytes_max = 64, .files_kept = 9});
    LogReader reader(directory_ / "d.log");
    Lines found, expected;
    for (int i = 0; i < 400; ++i) {
      expected.push_back("line " + std::to_string(i));
      file.append(expected.back() + "\n");
      if (i % pace == 0) {
        for (std::string& line : all(reader)) found.push_back(std::move(line));
      }
    }
    for (std::string& line : all(reader)) found.push_back(std::move(line));
    EXPECT_EQ(found, expected) << "every " << pace << " lines";
  }
}

TEST_F(Logs, AFileThatWasMovedAwayIsReadToItsEndAndItsSuccessorAfterIt) {
  append("d.log.1", "zero\n");
  append("d.log", "one\n");
  LogReader reader(directory_ / "d.log");
  EXPECT_EQ(all(reader), (Lines{"zero", "one"}));
  append("d.log", "two\n");
  std::filesystem::rename(directory_ / "d.log", directory_ / "elsewhere");
  EXPECT_EQ(all(reader), (Lines{"two"}));
  append("d.log", "three\n");
  EXPECT_EQ(all(reader), (Lines{"three"}));
  std::filesystem::remove_all(directory_);
  EXPECT_EQ(all(reader), Lines{});
}

TEST_F(Logs, SeveralAreMergedByTime) {
  append("a.log", "{\"ts\":\"2026-01-01T00:00:01Z\"}\nno time\n{\"ts\":\"2026-01-01T00:00:04Z\"}\n");
  append("b.log", "{\"ts\":\"2026-01-01T00:00:02Z\"}\n{\"ts\":\"2026-01-01T00:00:03Z\"}\n");
  LogMerge merge;
  const auto files = find_logs(directory_, "");
  ASSERT_TRUE(files);
  for (const auto& file : *files) merge.add(file);
  merge.add(directory_ / "a.log");
  std::string order;
  while (const auto line = merge.next()) order += line->find("ts") == std::string::npos ? '-' : line->at(25);
  EXPECT_EQ(order, "1-234");
  append("b.log", "rest");
  EXPECT_FALSE(merge.next());
  EXPECT_EQ(merge.take_rests(), (Lines{"rest"}));
}

TEST_F(Logs, AreFoundByName) {
  EXPECT_FALSE(find_logs(directory_, ""));
  EXPECT_EQ(find_logs(directory_ / "none", "").error().code, base::ErrorCode::kInvalidParams);
  append("no_directory", "x\n");
  EXPECT_EQ(find_logs(directory_ / "no_directory", "").error().code, base::ErrorCode::kIoError);
  std::filesystem::remove(directory_ / "no_directory");
  for (const char* name : {"orchestratord.log", "orchestratord.log.1", "worker-a.log", "worker-b.log"})
    append(name, "x\n");
  EXPECT_EQ(find_logs(directory_, "")->size(), 3U);
  EXPECT_EQ(find_logs(directory_, "worker-orcd")->size(), 2U);
  EXPECT_EQ(find_logs(directory_, "worker-a")->size(), 1U);
  const auto none = find_logs(directory_, "worker");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("orchestratord"), std::string::npos) << none.error().message;
}

TEST(ReadableLine, HasEveryFieldAndNoControlCharacter) {
  EXPECT_EQ(
      readable_line(
          R"({"ts":"T","v":1,"level":"warn","component":"orchestratord","emitted_by":"orchestratord@1","event":"a.b","human":"It broke.",)"
          R"("job_id":"j","count":3,"empty":""})"),
      "T warn  orchestratord a.b: It broke. job_id=j count=3");
  EXPECT_EQ(readable_line(R"({"event":"x","name":"\u001b[31m\u009bred"})").find('\x1b'), std::string::npos);
  EXPECT_EQ(readable_line("plain \x1b[2J text"), "plain  [2J text");
  EXPECT_EQ(readable_line("{\"event\":"), "{\"event\":");
  EXPECT_EQ(readable_line("[1]"), "[1]");
}

}  // namespace
}  // namespace llorch::cli::stack
