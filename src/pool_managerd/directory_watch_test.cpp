#include "pool_managerd/directory_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>

namespace llorch::pool_managerd {
namespace {

namespace fs = std::filesystem;

// As many files are open as may be.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    EXPECT_GE(next, 0);
    ::close(next);
    const rlimit none{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;
  ~NoMoreFiles() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

struct DirectoryWatchTest : ::testing::Test {
  ~DirectoryWatchTest() override { fs::remove_all(directory); }

  void write(const std::string& name, const std::string& text) const { std::ofstream(directory / name) << text; }
  static std::string listed(const std::vector<wire::WatchedModel>& models) {
    std::string out;
    for (const auto& model : models) out += model.model_id + (model.stamp.empty() ? "?" : "") + " ";
    return out;
  }
  std::string look() { return listed(watch.look()); }
  std::string unread() const { return directory.filename().string() + "? "; }

  const fs::path directory = [] {
    std::string name = (fs::temp_directory_path() / "llorch-watch-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    return fs::path(name);
  }();
  std::map<std::string, base::ErrorCode> faults;  // by file
  DirectoryWatch watch{{.directories = {directory}, .check = [this](const fs::path& model) -> base::Result<> {
                          const auto fault = faults.find(model.filename().string());
                          if (fault == faults.end()) return {};
                          return base::fail(fault->second, "for the test");
                        }}};
};

// Nobody takes a file for gone that has not been looked at yet.
TEST_F(DirectoryWatchTest, WhatIsNotKnownYetIsSaidToBe) {
  write("a.gguf", "a"), write("b.gguf", "b");
  faults = {{"b.gguf", base::ErrorCode::kCorruptFile}};
  EXPECT_EQ(listed(watch.models()), unread());
  EXPECT_EQ(look(), "a? b? ");
  EXPECT_EQ(look(), "a ");
  fs::remove(directory / "a.gguf");
  EXPECT_EQ(look(), "");
}

TEST_F(DirectoryWatchTest, AnErrorOfADirectoryTakesNoModelAway) {
  write("a.gguf", "a");
  {
    const NoMoreFiles full;
    EXPECT_EQ(look(), unread()) << "it has never been read";
  }
  (void)look();
  ASSERT_EQ(look(), "a ");
  {
    const NoMoreFiles full;
    EXPECT_EQ(look(), "a ");
    EXPECT_EQ(look(), "a ");
  }
  EXPECT_EQ(look(), "a ");
  fs::remove_all(directory);
  EXPECT_EQ(look(), "") << "gone is no error";
}

TEST_F(DirectoryWatchTest, AnErrorOfAFileTakesNoModelAway) {
  write("a.gguf", "a"), write("b.gguf", "b");
  faults = {{"b.gguf", base::ErrorCode::kIoError}};
  (void)look();
  EXPECT_EQ(look(), "a b? ");
  faults = {{"a.gguf", base::ErrorCode::kIoError}};
  EXPECT_EQ(look(), "a b ") << "asked again";
  write("a.gguf", "changed");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(look(), "a b ");
  faults = {{"a.gguf", base::ErrorCode::kCorruptFile}};
  EXPECT_EQ(look(), "b ");
}

// Of a split model too.
TEST_F(DirectoryWatchTest, AModelWithoutOneOfItsPartsIsGone) {
  write("m-00001-of-00002.gguf", "a"), write("m-00002-of-00002.gguf", "b");
  (void)look();
  ASSERT_EQ(look(), "m ");
  fs::remove(directory / "m-00002-of-00002.gguf");
  EXPECT_EQ(look(), "");
}

// A report with such a reference would be no JSON.
TEST_F(DirectoryWatchTest, AFileWhoseNameIsNoTextIsNoModel) {
  write("a\xff.gguf", "a");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(look(), "");
}

}  // namespace
}  // namespace llorch::pool_managerd
