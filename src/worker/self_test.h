#pragma once
// What a worker proves before it says ready (ORCH-3049): the model decodes as it did before, cancel works, metrics answer.
#include <filesystem>
#include <string>

#include "base/result.h"
#include "engine/inference/engine.h"
#include "net/client.h"

namespace llorch::worker {

// SHA-256 over the f32 bits of the output of a fixed prompt and, of logits, of one greedy step, in slot 0. The slot is reset
// afterwards.
base::Result<std::string> self_test_hash(engine::inference::Engine& engine);

// Compares with the hash recorded in `directory` under `key`, or records it now. SELF_TEST_FAILED names both hashes and the
// file: other bits from the same model, numerics and device mean a broken file, device or build.
base::Result<> check_self_test_record(const std::filesystem::path& directory, const std::string& key,
                                      const std::string& hash);

// A worker as its callers see it.
struct SelfTestServer {
  std::string url, bearer;
  bool embeds = false;  // instead of writing
  bool scores = false;  // with embeds: and gives scores of it
};
// Runs one job and cancels one through the worker's own HTTP surface. Blocks. SELF_TEST_FAILED says which part.
base::Result<> self_test_http(net::Client& client, const SelfTestServer& server);

}  // namespace llorch::worker
