#include "base/rotating_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/testing/full_disk.h"

namespace llorch::base {
namespace {

class RotatingFileTest : public ::testing::Test {
 protected:
  RotatingFileTest()
      : directory_(std::filesystem::temp_directory_path() / ("llorch_rotating_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(directory_);
  }
  ~RotatingFileTest() override { std::filesystem::remove_all(directory_); }
  std::string held(int n = 0) const {
    std::ifstream in(n == 0 ? file_.string() : file_.string() + "." + std::to_string(n), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  const std::filesystem::path directory_;
  const std::filesystem::path file_ = directory_ / "logs" / "d.log";
};

TEST_F(RotatingFileTest, OldLinesMoveOnWholeAndTheOldestGo) {
  {
    RotatingFile log(file_, {.file_bytes_max = 12, .files_kept = 2});
    log.append("one\ntwo\nth");  // th: waits for its rest
    EXPECT_EQ(held(), "one\ntwo\n");
    log.append("ree\nfour\nfive\nsix\nlonger than a file\n");
    EXPECT_EQ(held(), "longer than a file\n");
    EXPECT_EQ(held(1), "five\nsix\n");
    EXPECT_EQ(held(2), "three\nfour\n");
    EXPECT_EQ(held(3), "");
    log.append("an end without a line feed");
  }
  EXPECT_EQ(held(), "an end without a line feed\n");
  EXPECT_EQ(held(1), "longer than a file\n");
  RotatingFile again(file_, {.file_bytes_max = 100, .files_kept = 2});
  again.append("more\n");
  EXPECT_EQ(held(), "an end without a line feed\nmore\n");
}

// However the bytes are cut, every line is in one of the files, once and in order.
TEST_F(RotatingFileTest, NoLineIsLostOrCutAtATurn) {
  std::string all;
  for (int i = 0; i < 200; ++i)
    all += "line " + std::to_string(i) + std::string(static_cast<std::size_t>(i % 13), '.') + '\n';
  for (const std::size_t piece : {1u, 7u, 64u, 5000u}) {
    std::filesystem::remove_all(directory_);
    RotatingFile log(file_, {.file_bytes_max = 100, .files_kept = 100});
    for (std::size_t at = 0; at < all.size(); at += piece) log.append(std::string_view(all).substr(at, piece));
    std::string found;
    for (int n = 100; n >= 0; --n) {
      EXPECT_LE(held(n).size(), 100u);
      found += held(n);
    }
    EXPECT_EQ(found, all) << piece;
  }
}

TEST_F(RotatingFileTest, AFileOrDirectoryThatHasGoneIsMadeAgain) {
  RotatingFile log(file_);
  log.append("one\n");
  std::filesystem::rename(file_, file_.string() + ".moved");
  log.append("two\n");
  EXPECT_EQ(held(), "two\n");
  std::filesystem::remove_all(directory_);
  log.append("three\n");
  EXPECT_EQ(held(), "three\n");
}

TEST_F(RotatingFileTest, WhatAFullDiskCostsIsCountedInWholeLines) {
  RotatingFile log(file_);
  log.append("one\n");
  {
    const testing::FileSizeLimit full(11);
    log.append("two\nthree\n");  // a part of "three" fits
    log.append("four\n");
    EXPECT_EQ(held(), "one\ntwo\n");
  }
  log.append("five\n");
  EXPECT_TRUE(held().starts_with("one\ntwo\n{")) << held();
  EXPECT_NE(held().find("\"event\":\"log.dropped\""), std::string::npos);
  EXPECT_TRUE(held().ends_with("\"lines_dropped\":2}\nfive\n")) << held();
}

TEST_F(RotatingFileTest, ADirectoryThatCannotBeMadeCostsLinesOnly) {
  std::ofstream(directory_) << "a file where the directory would be";
  RotatingFile log(file_);
  log.append("one\n");
  std::filesystem::remove(directory_);
  log.append("two\n");
  EXPECT_TRUE(held().ends_with("\"lines_dropped\":1}\ntwo\n")) << held();
}

TEST_F(RotatingFileTest, ALineWithoutEndIsCut) {
  RotatingFile log(file_, {.line_bytes_max = 10});
  log.append(std::string(8, 'a'));
  log.append(std::string(8, 'a'));
  log.append("b\n");
  EXPECT_EQ(held(), std::string(16, 'a') + "\nb\n");
}

}  // namespace
}  // namespace llorch::base
