#include "worker/options.h"

#include <CLI/CLI.hpp>
#include <sstream>

#include "base/build_id.h"
#include "base/id.h"
#include "base/log.h"
#include "config/config.h"
#include "engine/inference/devices/open_devices.h"

namespace llorch::worker {
namespace {

// One number stands for every device.
void share_budgets(Options& o) {
  const std::size_t devices = engine::inference::devices::devices_count(o.gpu_device);
  auto& budgets = o.memory_budget_bytes;
  if (budgets.size() == 1) budgets.resize(devices, budgets[0]);
  if (budgets.empty() || budgets.size() == devices) return;
  throw CLI::ValidationError("--memory-budget-bytes", std::to_string(budgets.size()) + " numbers for " +
                                                          std::to_string(devices) + " devices; give one, or one each");
}

}  // namespace

ParsedOptions parse_options(int argc, const char* const* argv) {
  ParsedOptions parsed;
  Options& o = parsed.options;
  CLI::App app("worker-orcd: one model on one device, served over HTTP", "worker-orcd");
  app.set_version_flag("--version", base::version_text());
  const auto identifier = CLI::Validator(
      [](std::string& text) {
        return base::is_valid_identifier(text, 64) ? std::string() : "use 1 to 64 characters of A-Z, a-z, 0-9, _ and -";
      },
      "ID");
  const auto absolute = CLI::Validator(
      [](std::string& text) { return text.starts_with('/') ? std::string() : "must be an absolute path"; }, "PATH");
  const auto sha256 = CLI::Validator(
      [](std::string& text) {
        const bool is_one = text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
        return is_one ? std::string() : "must be 64 hex digits";
      },
      "SHA256");
  const auto devices = CLI::Validator(engine::inference::devices::check_names, "DEVICES");
  app.add_option("--worker-id", o.worker_id, "Unique in the pool")->check(identifier)->capture_default_str();
  app.add_option("--model", o.model, "Model file")->required()->check(absolute);
  auto* digest =
      app.add_option("--model-digest", o.model_digest, "Known SHA-256 of the model, so that it need not be computed")
          ->check(sha256);
  auto* stamp = app.add_option("--model-stamp", o.model_stamp, "State of the model's files that the digest is of")
                    ->check(sha256)
                    ->needs(digest);
  digest->needs(stamp);
  app.add_option("--model-ref", o.model_ref, "Reference to report (default: file:MODEL)");
  app.add_option("--gpu-device,--gpu", o.gpu_device,
                 "GPU number, or cpu for the reference device; several, as 0,1, share the model")
      ->required()
      ->check(devices);
  app.add_option("--bind", o.bind, "Address to listen on; beyond loopback only with a token")->capture_default_str();
  app.add_option("--advertise", o.advertise, "Host name or address that the pool is told (default: that of --bind)");
  app.add_flag("--auth-optional-on-loopback", o.auth_optional_on_loopback, "Callers on this machine need no token");
  auto* port = app.add_option("--port", o.port, "Port; 0 is chosen by the kernel")->capture_default_str();
  app.add_option("--listen-fd", o.listen_fd, "Descriptor of a socket that listens at --bind already (pool-managerd)")
      ->check(CLI::NonNegativeNumber)
      ->excludes(port);
  app.add_option("--callback-url", o.callback_url, "Where to report readiness (pool-managerd)");
  app.add_option("--progress-url", o.progress_url, "Where to report how much of the model is loaded (pool-managerd)");
  app.add_option("--context,--max-tokens-in", o.context_tokens, "Tokens of context per slot; 0 is the model's own")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{100'000'000}));
  app.add_option("--slots", o.slots, "Jobs at a time; never changes an answer")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1024}))
      ->capture_default_str();
  app.add_option("--kv-tokens", o.kv_tokens,
                 "Tokens the cache holds for all slots together, at least one context; 0 is slots x context. Jobs that "
                 "do not fit wait or are computed again, with the same answer")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000'000}))
      ->capture_default_str();
  app.add_option("--kv-tokens-max", o.kv_tokens_max, "Tokens to which the cache may grow before jobs wait; 0 is never")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000'000}))
      ->capture_default_str();
  app.add_option("--prefix-cache-ttl-ms", o.prefix_cache_ttl_ms,
                 "How long a prompt's cache pages may serve later prompts that begin alike; 0 is never")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--kv-dtype", o.kv_dtype, "Element type of the KV cache")
      ->check(CLI::IsMember({"f16", "f32"}))
      ->capture_default_str();
  app.add_option("--speculation", o.speculation,
                 "Compute tokens ahead: ngram proposes what followed before in the same text, draft what --draft-model "
                 "writes, mtp what the model's own layer for further tokens says; where it does not pay it pauses. "
                 "Never changes an answer")
      ->check(CLI::IsMember({"off", "ngram", "draft", "mtp"}))
      ->capture_default_str();
  app.add_option("--speculation-tokens", o.speculation_tokens, "Most tokens proposed for a job in a step")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{16}))
      ->capture_default_str();
  app.add_option("--draft-model", o.draft_model, "Small model with the same vocabulary, for --speculation draft")
      ->check(absolute);
  app.add_option("--image-tokens-max", o.image_tokens_max,
                 "Tokens that the images of one request may take; 0 takes no images. Each slot holds memory for them")
      ->check(CLI::Range(std::int64_t{0}, config::kImageTokensMax))
      ->capture_default_str();
  app.add_option("--threads", o.threads, "CPU device: threads; 0 is all cores; never changes an answer")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1024}));
  app.add_option("--memory-budget-bytes", o.memory_budget_bytes,
                 "Memory this worker may hold of each device: one number, or one per device as 100,200; 0 is no limit")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
  app.add_option("--inference-timeout-sec", o.inference_timeout_s, "Longest run of one job")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--prefill-chunk", o.prefill_chunk,
                 "Most rows of one step; a CPU gets as many as fit a quarter of a second. Never changes an answer")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{4096}))
      ->capture_default_str();
  app.add_option("--shutdown-grace-ms", o.shutdown_grace_ms, "Time running jobs get at shutdown")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--residency-check-ms", o.residency_check_ms,
                 "Time between looks at whether all memory of the model lies in the device")
      ->check(CLI::Range(std::int64_t{100}, std::int64_t{86'400'000}))
      ->capture_default_str();
  app.add_flag("--step-counters", o.step_counters,
               "GPUs: count kernel launches and time steps, for GET /metrics; off costs nothing");
  app.add_option("--self-test-dir", o.self_test_dir, "Directory of recorded self-test hashes");
  app.add_option("--repacked-dir", o.repacked_dir,
                 "Directory that keeps weights as the CPU device packs them, so that the next start need not pack them")
      ->check(absolute);
  app.add_option("--repacked-bytes-max", o.repacked_bytes_max,
                 "Most bytes in that directory; the least recently used go first; 0 keeps none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--log-level", o.log_level, "Least level logged")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(base::kLogLevelNames), std::end(base::kLogLevelNames))))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
    share_budgets(o);
    if ((o.speculation == "draft") != !o.draft_model.empty())
      throw CLI::ValidationError("--draft-model", "--speculation draft and --draft-model go together");
  } catch (const CLI::ParseError& e) {
    std::ostringstream out;
    const int code = app.exit(e, out, out);
    parsed.exit_code = code == 0 ? 0 : 2;
    parsed.message = out.str();
  }
  return parsed;
}

}  // namespace llorch::worker
