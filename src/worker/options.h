#pragma once
// worker-orcd's command line.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace llorch::worker {

struct Options {
  std::string worker_id = "worker-standalone";
  std::string model;  // absolute path of a .gguf file or a Hugging Face directory
  // The model's digest, and the stamp of the files that it was computed of (engine/io/model_digest.h), if pool-managerd
  // knows them; else empty.
  std::string model_digest, model_stamp;
  std::string model_ref;   // what the callback reports; empty: file:<model>
  std::string gpu_device;  // "cpu", the number of a GPU, or a list of either
  std::string bind = "127.0.0.1";
  std::string advertise;  // host under which others reach it; empty: bind
  bool auth_optional_on_loopback = false;
  std::uint16_t port = 0;  // 0 = chosen by the kernel
  int listen_fd = -1;      // of a socket that listens already; negative: none
  std::string callback_url;
  std::string progress_url;         // told how much of the model is loaded; empty: nobody
  std::int64_t context_tokens = 0;  // 0 = the model's own
  std::int64_t slots = 1;
  std::int64_t kv_tokens = 0;                  // positions the cache holds for all slots; 0 = slots x context
  std::int64_t kv_tokens_max = 0;              // to which the cache may grow while it runs; 0 = kv_tokens
  std::int64_t prefix_cache_ttl_ms = 600'000;  // how long pages of ended prompts may be found again; 0 = never
  std::string kv_dtype = "f16";
  // Tokens proposed ahead: "off", "ngram" (what followed before in the same text), "draft" (by draft_model), "mtp"
  // (by the model's own layer that predicts further tokens).
  std::string speculation = "off";
  std::int64_t speculation_tokens = 8;   // of one job in a step
  std::string draft_model;               // absolute path, with speculation "draft"
  std::int64_t image_tokens_max = 2048;  // of one request; 0 = takes no images
  std::int64_t threads = 0;              // CPU device; 0 = all cores
  std::vector<std::int64_t>
      memory_budget_bytes;                    // by device of the list, or one for all of them; 0, none: the machine's
  std::int64_t inference_timeout_s = 86'400;  // orchestratord's timeout.max_ms is the limit of its jobs
  std::int64_t prefill_chunk = 64;            // most rows of one step; never changes a result
  std::int64_t shutdown_grace_ms = 5000;
  std::int64_t residency_check_ms = 60'000;  // between looks at where the model and its caches lie
  bool step_counters = false;                // count kernel launches and time steps, on GPUs
  std::string self_test_dir;                 // empty: <state dir>/self_test
  std::string repacked_dir;                  // weights packed for the CPU device are kept in it; empty: nowhere
  std::int64_t repacked_bytes_max = 32LL << 30;
  std::string log_level = "info";
};

// `exit_code` set: print `message` and exit with it (help, version, usage errors).
struct ParsedOptions {
  Options options;
  std::optional<int> exit_code;
  std::string message;
};
ParsedOptions parse_options(int argc, const char* const* argv);

}  // namespace llorch::worker
