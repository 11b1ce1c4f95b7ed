#include "worker/loading/digest_beside_load.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <fstream>
#include <functional>

#include "base/sha256.h"

namespace llorch::worker::loading {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;
using engine::io::model_stamp;

class DigestTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "llorch-digest-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    model_ = directory_ / "m.gguf";
    write(model_, "first");
  }
  void TearDown() override { fs::remove_all(directory_); }

  static void write(const fs::path& path, std::string_view content) { std::ofstream(path) << content; }
  static std::string sha256(std::string_view content) { return base::to_hex(base::sha256(content)); }
  DigestBesideLoad start(const engine::io::StampedDigest& known = {}) const {
    return DigestBesideLoad::start(model_, known).value();
  }
  // A digest that no file has shows whether it was taken over.
  engine::io::StampedDigest told() const { return {.digest = "told", .stamp = model_stamp(model_).value()}; }
  static void expect_changed(DigestBesideLoad digest) {
    const auto end = digest.finish();
    ASSERT_FALSE(end) << *end;
    EXPECT_EQ(end.error().code, ErrorCode::kIoError);
    EXPECT_NE(end.error().message.find("m.gguf was changed while it was loaded"), std::string::npos)
        << end.error().message;
  }

  fs::path directory_, model_;
};

TEST_F(DigestTest, IsComputedUnlessItIsKnownOfTheseVeryFiles) {
  EXPECT_EQ(start().finish(), sha256("first"));
  EXPECT_EQ(start(told()).finish(), "told");
  EXPECT_EQ(start({.digest = "told", .stamp = sha256("of another file")}).finish(), sha256("first"));
  const auto before = told();
  write(directory_ / "other.gguf", "other");
  fs::last_write_time(directory_ / "other.gguf", fs::last_write_time(model_));
  fs::rename(directory_ / "other.gguf", model_);
  EXPECT_EQ(start(before).finish(), sha256("other")) << "same name, size and time, but another file";
}

// The digest in a receipt is of the bytes that were loaded, whoever computed it.
TEST_F(DigestTest, FilesThatChangeWhileTheyAreLoadedGiveNone) {
  const auto replace = [&] {
    write(directory_ / "other.gguf", "other");
    fs::last_write_time(directory_ / "other.gguf", fs::last_write_time(model_));
    fs::rename(directory_ / "other.gguf", model_);
  };
  const auto lengthen = [&] { std::ofstream(model_, std::ios::app) << "more"; };
  const auto touch = [&] { fs::last_write_time(model_, fs::last_write_time(model_) + std::chrono::seconds(5)); };
  for (const std::function<void()>& change : {std::function<void()>(replace), {lengthen}, {touch}}) {
    auto computed = start();
    change();
    expect_changed(std::move(computed));
    auto known = start(told());
    change();
    expect_changed(std::move(known));
  }
}

TEST_F(DigestTest, WhatCannotBeReadSaysSo) {
  EXPECT_EQ(DigestBesideLoad::start(directory_ / "absent.gguf", {}).error().code, ErrorCode::kIoError);
  for (const auto& known : {engine::io::StampedDigest{}, told()}) {
    auto digest = start(known);
    fs::remove(model_);
    EXPECT_EQ(digest.finish().error().code, ErrorCode::kIoError);
    write(model_, "first");
  }
  // A directory that is no model has come in the place of the file.
  fs::remove(model_);
  fs::create_directory(model_);
  EXPECT_EQ(DigestBesideLoad::start(model_, {}).error().code, ErrorCode::kUnsupportedFormatVersion);
}

// A load that fails does not wait until a large file is hashed.
TEST_F(DigestTest, AnAbandonedOneEndsInTheMiddleOfAFile) {
  fs::resize_file(model_, std::uint64_t{1} << 42);  // sparse; hashing it takes longer than any test may
  const auto abandoned = start();
}

}  // namespace
}  // namespace llorch::worker::loading
