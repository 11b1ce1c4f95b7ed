#pragma once
// What a client asks for, and what must come of it: the tokens of a job are a pure function of its request, so every
// observer can say which bytes are right.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/core.h>

#include "base/philox.h"
#include "wire/task.h"

namespace llorch::sim {

// A worker that computes other tokens does so from here on.
constexpr std::int64_t kDivergesAt = 3;

struct JobRequest {
  std::string task_id;  // the job's id as well
  int model = 0;
  wire::Priority priority = wire::Priority::kInteractive;
  wire::OnDisconnect on_disconnect = wire::OnDisconnect::kCancel;
  std::int64_t tokens_in = 5;
  std::int64_t max_tokens = 10;
  std::uint64_t seed = 0;
  std::optional<std::int64_t> timeout_ms, deadline_ms;
  wire::Placement placement;
  std::optional<std::string> session;

  bool operator==(const JobRequest&) const = default;
};

// A UUID: the client's name of a job is the job's id then.
inline std::string job_name(std::int64_t number) { return fmt::format("00000000-0000-4000-8000-{:012}", number); }
// Models lie in a directory that no machine has.
inline constexpr const char* kModelsDirectory = "/llorch-simulated-models";
inline std::string model_ref_of(std::string_view model) { return fmt::format("file:{}/{}", kModelsDirectory, model); }
inline std::string model_digest_of(std::string_view model) { return fmt::format("sha256:{}", model); }
inline std::string session_name(std::int64_t number) { return fmt::format("session-{}", number); }
// Whose throttle counts it.
inline std::string caller_of(const JobRequest& r) { return fmt::format("caller-{}", r.seed % 2); }
// At least one; some end before max_tokens.
inline std::int64_t tokens_count(const JobRequest& r) {
  const auto eos = static_cast<std::int64_t>(base::philox(r.seed, {.position = 0xFFFF})[0] % 64);
  return eos == 0 || eos > r.max_tokens ? r.max_tokens : eos;
}
// Some are empty, as when a stop string is held back.
inline std::string token_text(const JobRequest& r, std::int64_t i) {
  const std::uint32_t word = base::philox(r.seed, {.position = static_cast<std::uint32_t>(i)})[1];
  return word % 8 == 0 ? std::string() : fmt::format("{:x} ", word % 4096);
}

}  // namespace llorch::sim
