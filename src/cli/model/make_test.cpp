#include "cli/model/make.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "base/testing/full_disk.h"
#include "cli/model/tools.h"
#include "engine/io/gguf.h"

namespace llorch::cli::model {
namespace {

class MakeModels : public testing::Test {
 protected:
  MakeModels() { std::filesystem::create_directories(directory_); }
  ~MakeModels() override { std::filesystem::remove_all(directory_); }

  std::string file(const std::string& name) const { return (directory_ / name).string(); }
  std::size_t files_count() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(directory_), {}));
  }
  int make(const std::string& name, SynthOptions options = {}) const {
    if (options.architecture.empty()) options.architecture = "llama";
    if (options.output.type.empty()) options.output.type = "F32";
    options.output.out = file(name);
    return synth({.json = true}, options);
  }
  int convert(const std::string& in, const std::string& out, const std::string& type, bool force = false) const {
    return quantize({.json = true}, {.in = file(in), .output = {.out = file(out), .type = type, .force = force}});
  }

  const std::filesystem::path directory_ =
      std::filesystem::path(testing::TempDir()) / ("llorch-make-" + std::to_string(::getpid()));
};

TEST_F(MakeModels, AFileOfAnotherType) {
  ASSERT_EQ(make("a.gguf"), kOk);
  ASSERT_EQ(convert("a.gguf", "b.gguf", "q4_k"), kOk);
  EXPECT_LT(std::filesystem::file_size(file("b.gguf")), std::filesystem::file_size(file("a.gguf")) / 4);
}

TEST_F(MakeModels, NothingReplacesItsInputOrWhatIsNoFile) {
  ASSERT_EQ(make("a.gguf"), kOk);
  const auto bytes = base::read_file(file("a.gguf"), 64 << 20).value();
  std::filesystem::create_hard_link(file("a.gguf"), file("same.gguf"));
  std::filesystem::create_symlink(file("nowhere"), file("link.gguf"));
  ASSERT_EQ(::mkfifo(file("pipe.gguf").c_str(), 0600), 0);
  for (const char* out : {"a.gguf", "./a.gguf", "same.gguf", "link.gguf", "pipe.gguf"}) {
    EXPECT_EQ(convert("a.gguf", out, "q4_k", true), kFailed) << out;
  }
  EXPECT_EQ(base::read_file(file("a.gguf"), 64 << 20).value(), bytes);
  EXPECT_TRUE(std::filesystem::is_symlink(file("link.gguf")));
  EXPECT_TRUE(std::filesystem::is_fifo(file("pipe.gguf")));
  EXPECT_EQ(check_output_file(file("a.gguf"), true, {file("a.gguf")}).error().code, base::ErrorCode::kConflict);
  EXPECT_EQ(files_count(), 4u);
}

// The stream's failure is known at its end, and errno is of something else by then.
TEST_F(MakeModels, AFileThatCannotBeWrittenSaysWhy) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{.rlim_cur = 4096, .rlim_max = 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_IGN);
    PartialFile out(file("out"), false);
    out.out() << std::string(1 << 20, 'x');
    errno = ENOENT;
    const auto written = out.commit();
    ::_exit(!written && written.error().message.find(std::strerror(EFBIG)) != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(MakeModels, RepeatedLayersHaveTheBytesOfTheFirst) {
  // A tensor that is stored as another type than the layer's it repeats is made from the values all the same.
  const auto tensor_of = [&](const std::string& name, bool repeat_layers, const std::string& tensor) {
    EXPECT_EQ(make(name, {.shape = {.layers = 3},
                          .repeat_layers = repeat_layers,
                          .output = {.type = "Q8_0", .tensors = {"blk.2.attn_q.weight=F32"}, .force = true}}),
              kOk);
    const auto files = engine::io::GgufFile::open(file(name)).value();
    for (const engine::io::GgufTensor& stored : files.tensors())
      if (stored.name == tensor) return std::pair(stored.dtype, stored.data.read_all().value());
    ADD_FAILURE() << tensor;
    return std::pair(engine::plan::DType::kF32, std::vector<std::byte>());
  };
  for (const bool repeated : {true, false})
    EXPECT_EQ(
        tensor_of("a.gguf", repeated, "blk.0.attn_k.weight") == tensor_of("a.gguf", repeated, "blk.1.attn_k.weight"),
        repeated);
  EXPECT_EQ(tensor_of("a.gguf", true, "blk.0.attn_k.weight"), tensor_of("b.gguf", false, "blk.0.attn_k.weight"));
  EXPECT_EQ(tensor_of("a.gguf", true, "blk.2.attn_q.weight").first, engine::plan::DType::kF32);
}

TEST_F(MakeModels, WhatIsThereStaysWithoutForce) {
  ASSERT_EQ(make("a.gguf"), kOk);
  std::ofstream(file("b.gguf")) << "mine";
  EXPECT_EQ(convert("a.gguf", "b.gguf", "Q8_0"), kFailed);
  EXPECT_EQ(std::filesystem::file_size(file("b.gguf")), 4U);
  EXPECT_EQ(convert("a.gguf", "b.gguf", "Q8_0", true), kOk);
  EXPECT_GT(std::filesystem::file_size(file("b.gguf")), 4U);
}

TEST_F(MakeModels, WhatAppearsMeanwhileStaysWithoutForce) {
  ASSERT_EQ(make("a.gguf"), kOk);
  for (const bool force : {false, true}) {
    QuantizeOptions options{.in = file("a.gguf"), .output = {.out = file("b.gguf"), .type = "Q8_0", .force = force}};
    options.output.on_progress = [&] { std::ofstream(file("b.gguf")) << "mine"; };
    EXPECT_EQ(quantize({.json = true}, options), force ? kOk : kFailed);
    EXPECT_EQ(std::filesystem::file_size(file("b.gguf")) == 4, !force);
    EXPECT_EQ(files_count(), 2U);
    std::filesystem::remove(file("b.gguf"));
  }
}

TEST_F(MakeModels, AnInputThatChangesMeanwhileLeavesNothing) {
  ASSERT_EQ(make("a.gguf"), kOk);
  QuantizeOptions options{.in = file("a.gguf"), .output = {.out = file("b.gguf"), .type = "Q8_0"}};
  options.output.on_progress = [&] {
    std::fstream in(file("a.gguf"), std::ios::binary | std::ios::in | std::ios::out);
    in.seekp(-1, std::ios::end);
    in.put('\1');
  };
  testing::internal::CaptureStderr();
  EXPECT_EQ(quantize({.json = true}, options), kFailed);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("changed while it was read"), std::string::npos);
  EXPECT_EQ(files_count(), 1U);
}

TEST_F(MakeModels, MistakesLeaveNothing) {
  ASSERT_EQ(make("a.gguf"), kOk);
  EXPECT_EQ(convert("a.gguf", "b.gguf", "Q9"), kUsage);
  EXPECT_EQ(convert("none.gguf", "b.gguf", "Q8_0"), kFailed);
  EXPECT_EQ(convert("a.gguf", "none/b.gguf", "Q8_0"), kFailed);
  EXPECT_EQ(make("b.gguf", {.architecture = "abacus"}), kFailed);
  EXPECT_EQ(make("b.gguf", {.preset = "gpt-5"}), kUsage);
  EXPECT_EQ(make("b.gguf", {.preset = "qwen3-8b"}), kUsage);  // of another architecture than llama
  EXPECT_EQ(files_count(), 1U);
}

TEST_F(MakeModels, AFullDiskLeavesNothing) {
  ASSERT_EQ(make("a.gguf"), kOk);
  // Files may not grow past 64 KiB in a child: what a write gets is an error as on a full disk.
  const auto convert_and_exit = [&] {
    const base::testing::FileSizeLimit no_room(65536);
    std::_Exit(convert("a.gguf", "b.gguf", "F16"));
  };
  EXPECT_EXIT(convert_and_exit(), testing::ExitedWithCode(kFailed), "cannot write");
  EXPECT_EQ(files_count(), 1U);
}

TEST_F(MakeModels, AStopSignalLeavesNothing) {
  SynthOptions large{.architecture = "llama", .preset = "llama-8b"};
  large.shape.layers = 8;
  const auto stop_and_exit = [&](int signal) {
    ::signal(signal, SIG_DFL);  // ignored under nohup
    std::thread([this, signal] {
      while (files_count() == 0) std::this_thread::yield();  // until it writes
      ::kill(::getpid(), signal);
    }).detach();
    std::_Exit(make("b.gguf", large));
  };
  EXPECT_EXIT(stop_and_exit(SIGINT), testing::ExitedWithCode(kInterrupted), "CANCELLED");
  EXPECT_EXIT(stop_and_exit(SIGHUP), testing::ExitedWithCode(kInterrupted), "CANCELLED");
  EXPECT_EQ(files_count(), 0U);
}

}  // namespace
}  // namespace llorch::cli::model
