#pragma once
// An engine over a made-up model of a few kilobytes on a device without arithmetic, for tests of everything but numbers.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <vector>

#include "engine/inference/engine.h"
#include "engine/inference/testing/faulty_backend.h"
#include "engine/models/testing/tiny_llama.h"

namespace llorch::engine::inference::testing {

// A file in a directory of its own, gone with the object.
class ModelFile {
 public:
  explicit ModelFile(const models::testing::TinyLlama& tiny = {}) {
    char name[] = "/tmp/llorch-engine-XXXXXX";
    directory_ = mkdtemp(name);
    const std::vector<std::byte> bytes = tiny.bytes();
    std::ofstream(path(), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  ~ModelFile() { std::filesystem::remove_all(directory_); }
  std::filesystem::path path() const { return directory_ / "tiny.gguf"; }

 private:
  std::filesystem::path directory_;
};

inline std::vector<base::TokenId> ids(std::initializer_list<std::uint32_t> numbers) {
  std::vector<base::TokenId> result;
  for (std::uint32_t number : numbers) result.push_back(base::TokenId{number});
  return result;
}
inline std::vector<base::TokenId> many(std::uint32_t count) {
  std::vector<base::TokenId> result;
  for (std::uint32_t i = 0; i < count; ++i) result.push_back(base::TokenId{i % 40});
  return result;
}

struct Loaded {
  explicit Loaded(const EngineOptions& options, const models::testing::TinyLlama& tiny = {}) : file(tiny) {
    auto result = Engine::load(file.path(), options, backend);
    EXPECT_TRUE(result) << result.error().message;
    engine = *std::move(result);
  }
  ModelFile file;
  FaultyBackend backend;
  std::unique_ptr<Engine> engine;
};

}  // namespace llorch::engine::inference::testing
