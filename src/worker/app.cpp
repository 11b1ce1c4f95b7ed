#include "worker/app.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <optional>
#include <thread>

#include "base/build_id.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "config/config.h"
#include "engine/inference/devices/open_devices.h"
#include "engine/io/tokenizer_json/tokenizer_directory.h"
#include "net/http/url.h"
#include "wire/json.h"
#include "wire/pool.h"
#include "worker/http_api.h"
#include "worker/loading/digest_beside_load.h"
#include "worker/loading/draft_vocabulary.h"
#include "worker/loading/packed_weights.h"
#include "worker/loading/ready_report.h"
#include "worker/self_test.h"
#include "worker/step_gate/step_gate.h"

namespace llorch::worker {
namespace {

using base::ErrorCode;
using base::LogLevel;

// Writes down when the cache grows, is compacted, or cannot grow.
class KvLog final : public engine::inference::kv_cache::KvObserver {
 public:
  std::int64_t now_us() override {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  }
  void on_slabs(const engine::inference::kv_cache::SlabEvent& event) override {
    base::log_event(LogLevel::kInfo, engine::inference::kv_cache::event_name(event.kind), {},
                    "The cache changed its slabs.",
                    {{"state_id", std::int64_t{event.state_id}},
                     {"free_frac", event.free_frac},
                     {"largest_free_bytes", static_cast<std::int64_t>(event.largest_free_bytes)},
                     {"bytes_moved", static_cast<std::int64_t>(event.bytes_moved)},
                     {"bytes_taken", static_cast<std::int64_t>(event.bytes_taken)},
                     {"bytes_given_back", static_cast<std::int64_t>(event.bytes_given_back)},
                     {"ms", event.ms}});
  }
  void on_oom(const engine::inference::memory::OomRecord& record) override { log_oom(record); }
  static void log_oom(const engine::inference::memory::OomRecord& record) {
    base::log_event(LogLevel::kWarn, "oom", {}, "Device memory was short; the worker goes on with less.",
                    {{"stage", record.stage},
                     {"purpose", record.purpose},
                     {"requested_bytes", static_cast<std::int64_t>(record.requested_bytes)},
                     {"free_bytes", static_cast<std::int64_t>(record.free_bytes)},
                     {"action", record.action}});
  }
};

// The images of a request, and the ids of a prompt that fills the longest context.
constexpr std::size_t kRequestBytesMax = wire::kImagesBytesMax + (16 << 20);

// Before the hex digits of a model's digest.
constexpr std::string_view kSha256 = "sha256:";

// A GPU's step of all its rows is shorter; here it takes as long as the model is large, and a cancel waits for its end.
constexpr double kCpuStepSecondsMax = 0.25;

// How long a word about the load may take; the next one says more.
constexpr std::int64_t kProgressTimeoutMs = 5'000;

// Everything that exists before the first request, in the order it is made.
struct Loaded {
  engine::inference::devices::OpenDevices devices;
  std::optional<engine::inference::repack_cache::RepackCache> repack_cache;  // none: weights are not kept
  std::unique_ptr<engine::inference::Engine> engine;
  std::unique_ptr<engine::inference::Engine> draft;  // null: nobody writes ahead
  std::optional<text::Tokenizer> tokenizer;
  std::string model_digest, model_stamp;
};

base::Result<engine::inference::devices::OpenDevices> open_devices(const Options& o) {
  return engine::inference::devices::open_devices(
      {.names = o.gpu_device,
       .cpu_threads_count =
           o.threads == 0 ? std::max(1u, std::thread::hardware_concurrency()) : static_cast<std::uint32_t>(o.threads),
       .memory_budget_bytes = {o.memory_budget_bytes.begin(), o.memory_budget_bytes.end()},
       .count_steps = o.step_counters});
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string spawn_token() { return environment("LLORCH_SPAWN_TOKEN"); }
// What this worker shows its pool.
std::string callback_token() { return environment("LLORCH_WORKER_CALLBACK_TOKEN"); }
base::Result<std::string> worker_token() { return config::load_worker_token(std::getenv); }

// Into the log, and to who waits for the model; the load waits for nobody.
void say_progress(net::Client& client, const Options& o, unsigned percent) {
  base::log_event(LogLevel::kInfo, "model_load_progress", {}, "The model is loading.", {{"percent", percent}});
  if (o.progress_url.empty()) return;
  const wire::LoadProgress progress{.worker_id = o.worker_id, .spawn_token = spawn_token(), .percent = percent};
  client.request({.method = "POST",
                  .url = o.progress_url,
                  .headers = {{"Content-Type", "application/json"}},
                  .bearer = callback_token(),
                  .body = wire::encode(progress),
                  .timeout_ms = kProgressTimeoutMs},
                 [](const base::Result<net::Response>&) {});
}

// What the devices hold, and of which type most of it is; FP8 that had to become BF16 is told apart.
void note_memory(const Loaded& loaded) {
  const auto& engine = *loaded.engine;
  const std::vector<std::uint64_t> bytes = engine.memory_used_bytes();
  std::uint64_t sum = 0, weights = 0, kv = 0, widened = 0;
  for (std::uint32_t rank = 0; rank < bytes.size(); ++rank) {
    sum += bytes[rank];
    weights += engine.memory_plan(rank).weights_bytes;
    kv += engine.memory_plan(rank).kv_bytes;
    widened += engine.memory_plan(rank).widened_bytes;
    if (bytes.size() == 1) break;
    base::log_event(LogLevel::kInfo, "model_load_device", {}, "A device has its part of the model.",
                    {{"rank", std::int64_t{rank}},
                     {"device_class", std::string(loaded.devices.backends[rank]->device_class())},
                     {"vram_bytes", static_cast<std::int64_t>(bytes[rank])},
                     {"widened_bytes", static_cast<std::int64_t>(engine.memory_plan(rank).widened_bytes)}});
  }
  for (const std::string& note : engine.notes())
    base::log_event(LogLevel::kInfo, "model_load_note", {}, "Something in the model's files is not used.",
                    {{"note", note}});
  base::log_event(LogLevel::kInfo, "model_load_complete", {}, "The model is in device memory.",
                  {{"model_digest", loaded.model_digest},
                   {"weight_type", engine.facts().weight_type},
                   {"vram_bytes", static_cast<std::int64_t>(sum)},
                   {"weights_bytes", static_cast<std::int64_t>(weights)},
                   {"kv_bytes", static_cast<std::int64_t>(kv)},
                   {"widened_bytes", static_cast<std::int64_t>(widened)},
                   {"weights_were_kept", engine.facts().weights_were_kept},
                   {"weights_not_kept_why", engine.facts().weights_not_kept_why}});
}

std::uint32_t proposals_max(const Options& o) {
  return o.speculation == "off" ? 0 : static_cast<std::uint32_t>(o.speculation_tokens);
}

base::Result<std::unique_ptr<engine::inference::Engine>> load_draft(const Options& o, const Loaded& loaded,
                                                                    std::uint32_t tokens_count) {
  using engine::inference::speculation::DraftModel;
  if (o.draft_model.empty()) return nullptr;
  TRY(loading::check_draft_vocabulary(*loaded.tokenizer, tokens_count,
                                      TRY(engine::io::tokenizer_json::read_tokenizer(o.draft_model))));
  const auto& target = loaded.engine->facts();
  const std::uint32_t context_max =
      TRY(engine::inference::Engine::predict(o.draft_model, {.image_rows_max = 0}, *loaded.devices.backends[0]))
          .context_tokens;
  auto draft = TRY(engine::inference::Engine::load(o.draft_model,
                                                   {.context_tokens = std::min(target.context_tokens, context_max),
                                                    .slots = target.slots,
                                                    .prefill_chunk = static_cast<std::uint32_t>(o.prefill_chunk),
                                                    .image_rows_max = 0},
                                                   *loaded.devices.backends[0]));
  TRY(DraftModel::check(*draft));
  base::log_event(
      LogLevel::kInfo, "draft_model_load_complete", {}, "The draft model is in device memory.",
      {{"model", o.draft_model}, {"vram_bytes", static_cast<std::int64_t>(draft->memory_plan().total_bytes())}});
  return draft;
}

base::Result<Loaded> load(const Options& o, net::Client& client) {
  Loaded loaded;
  loaded.devices = TRY(open_devices(o));
  base::log_event(LogLevel::kInfo, "model_load_start", {}, "Loading the model.",
                  {{"model", o.model}, {"gpu_id", o.gpu_device}});
  loaded.repack_cache = loading::repack_cache_of(o.repacked_dir, o.repacked_bytes_max);
  auto digest = TRY(loading::DigestBesideLoad::start(o.model, {.digest = o.model_digest, .stamp = o.model_stamp}));
  const std::uint32_t proposal_rows =
      engine::inference::speculation::proposal_rows_of(static_cast<std::uint32_t>(o.slots), proposals_max(o));
  const engine::inference::EngineOptions options{
      .context_tokens = static_cast<std::uint32_t>(o.context_tokens),
      .slots = static_cast<std::uint32_t>(o.slots),
      .kv_dtype = o.kv_dtype == "f32" ? engine::plan::DType::kF32 : engine::plan::DType::kF16,
      .prefill_chunk = static_cast<std::uint32_t>(o.prefill_chunk),
      .output_rows_max = engine::inference::output_rows_of(static_cast<std::uint32_t>(o.slots), proposal_rows),
      .proposal_rows_max = proposal_rows,
      .predicts = o.speculation == "mtp",
      .kv_tokens = static_cast<std::uint64_t>(o.kv_tokens),
      .kv_tokens_max = static_cast<std::uint64_t>(o.kv_tokens_max),
      .frame_patches_max = 0,
      .image_rows_max = static_cast<std::uint32_t>(o.image_tokens_max),
      .draws = true,
      .repack_cache = loaded.repack_cache ? &*loaded.repack_cache : nullptr,
      .model_digest = digest.known()};
  const auto report = [&](unsigned percent) { say_progress(client, o, percent); };
  loaded.engine = TRY(engine::inference::Engine::load(o.model, options, loaded.devices.of_engine(), report));
  for (const auto& record : loaded.engine->facts().oom) KvLog::log_oom(record);
  auto tokenizer = TRY(engine::io::tokenizer_json::read_tokenizer(o.model));
  TRY(text::fit_to_rows(tokenizer, loaded.engine->facts().vocab));
  const std::uint32_t tokens_count = loading::tokens_used(tokenizer);
  loaded.tokenizer = TRY(text::Tokenizer::create(std::move(tokenizer)));
  loaded.draft = TRY(load_draft(o, loaded, tokens_count));
  loaded.model_digest = std::string(kSha256) + TRY(digest.finish());
  loaded.model_stamp = digest.stamp();
  note_memory(loaded);
  return loaded;
}

// What the engine planned for weights and state, and what else it holds.
std::vector<wire::DeviceMemory> memory_by_device(const engine::inference::Engine& engine,
                                                 const std::vector<std::uint64_t>& bytes) {
  std::vector<wire::DeviceMemory> out;
  for (std::uint32_t rank = 0; rank < bytes.size(); ++rank) {
    const auto& plan = engine.memory_plan(rank);
    const std::uint64_t weights = std::min(plan.weights_bytes, bytes[rank]);
    const std::uint64_t state = std::min(plan.state_bytes, bytes[rank] - weights);
    out.push_back({.weights_bytes = static_cast<std::int64_t>(weights),
                   .cache_bytes = static_cast<std::int64_t>(state),
                   .workspace_bytes = static_cast<std::int64_t>(bytes[rank] - weights - state)});
  }
  return out;
}

loading::ReadyReport ready_report_of(const Options& o, const Loaded& loaded) {
  const std::vector<std::uint64_t> bytes = loaded.engine->memory_used_bytes();
  return {.facts = loaded.engine->facts(),
          .worker_id = o.worker_id,
          .model_ref = o.model_ref.empty() ? "file:" + o.model : o.model_ref,
          .model_digest = loaded.model_digest,
          .model_stamp = loaded.model_stamp,
          .tokenizer_kind = std::string(loaded.tokenizer->facts().kind),
          .memory_architecture = engine::inference::devices::names_cpu(o.gpu_device) ? "host" : "vram-only",
          .memory_bytes = bytes,
          .memory_by_device = memory_by_device(*loaded.engine, bytes)};
}

bool pools(const engine::inference::EngineFacts& facts) { return facts.pooling != engine::plan::Pooling::kNone; }

base::Result<> report_ready(net::Client& client, const Options& o, const loading::ReadyReport& report,
                            const std::string& uri) {
  wire::ReadyCallback callback = loading::ready_call_of(report);
  callback.spawn_token = spawn_token();
  callback.uri = uri;
  const auto response = TRY(client.call({.method = "POST",
                                         .url = o.callback_url,
                                         .headers = {{"Content-Type", "application/json"}},
                                         .bearer = callback_token(),
                                         .body = wire::encode(callback)}));
  if (response.status >= 400) return base::fail(net::http::error_of(response));
  return {};
}

std::vector<const engine::plan::StepMeter*> meters_of(const engine::inference::devices::OpenDevices& devices) {
  std::vector<const engine::plan::StepMeter*> meters;
  for (const auto& meter : devices.meters) meters.push_back(meter.get());
  return meters;
}

base::Result<> self_test_engine(const Options& o, Loaded& loaded) {
  const auto& facts = loaded.engine->facts();
  const std::string hash = TRY(self_test_hash(*loaded.engine));
  const std::filesystem::path directory =
      o.self_test_dir.empty() ? base::default_state_directory() / "self_test" : std::filesystem::path(o.self_test_dir);
  std::string key =
      fmt::format("{}-{}-{}-{}", loaded.model_digest.substr(7), facts.numerics, facts.device_class, facts.kv_dtype);
  std::replace_if(
      key.begin(), key.end(), [](char c) { return c == '/' || c == ' '; }, '_');
  return check_self_test_record(directory, key, hash);
}

// What steps cost. On the CPU device work is time of all cores, and does not grow while others use them too.
double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}
double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

engine::inference::ContinuousBatchOptions batch_options(const Options& o, base::Entropy& entropy) {
  engine::inference::ContinuousBatchOptions options{.cache_ttl_ms = o.prefix_cache_ttl_ms};
  const bool on_cpu = engine::inference::devices::names_cpu(o.gpu_device);
  options.speculation.proposals_max = proposals_max(o);
  options.speculation.spent = on_cpu ? cpu_seconds : seconds;
  if (on_cpu) {
    options.step_seconds_max = kCpuStepSecondsMax;
    options.seconds = seconds;
  }
  if (o.prefix_cache_ttl_ms == 0) return options;
  options.cache_salt.resize(32);
  entropy.fill(options.cache_salt);
  return options;
}

// How tokens are computed ahead, as the log and receipts say it; empty: not at all.
std::string speculation_method(const Options& o, const engine::inference::Engine& engine) {
  if (o.speculation == "off") return "";
  if (pools(engine.facts())) {
    base::log_event(LogLevel::kInfo, "speculation", {},
                    "Nothing is computed ahead: the model makes vectors, not tokens.", {{"method", "off"}});
    return "";
  }
  base::log_event(LogLevel::kInfo, "speculation", {}, "Tokens are computed ahead of their draw where it pays.",
                  {{"method", o.speculation},
                   {"tokens_max", o.speculation_tokens},
                   {"rows_max", std::int64_t{engine.facts().proposal_rows_max}},
                   {"copies_state", !engine.facts().paged}});
  return o.speculation;
}

// Null unless a test holds the steps of this worker.
base::Result<std::unique_ptr<StepGate>> step_gate() {
  const char* fifo = std::getenv("LLORCH_STEP_GATE");
  if (fifo == nullptr) return std::unique_ptr<StepGate>{};
  auto gate = TRY(StepGate::open(fifo));
  base::log_event(LogLevel::kWarn, "step_gate", {}, "LLORCH_STEP_GATE is set: steps of this worker wait for a test.",
                  {{"fifo", fifo}});
  return gate;
}

// To the network: there from the first byte that is loaded.
struct Network {
  explicit Network(net::http::AuthRules rules) : auth(std::move(rules)) {}
  net::http::AuthRules auth;
  net::IoRuntime runtime;
  net::Client client{runtime};
};

base::Result<> serve(const Options& o, Loaded& loaded, Network& network) {
  const base::SystemClock clock;
  base::SystemEntropy entropy;
  net::IoRuntime request_runtime;
  const loading::ReadyReport report = ready_report_of(o, loaded);  // before the loop has the engine
  const wire::WorkerHealth health = loading::health_of(report);
  // The main thread waits for the signal; one way to stop.
  const auto ask_to_stop = [] { ::kill(::getpid(), SIGTERM); };
  const std::unique_ptr<StepGate> gate = TRY(step_gate());
  const std::string method = speculation_method(o, *loaded.engine);
  engine::inference::ContinuousBatchOptions batch = batch_options(o, entropy);
  if (gate) {
    batch.speculation.proposals_max = 0;  // to a test a step is a token
    batch.step_seconds_max = 0;           // and as long as it is without a clock
  }
  EngineLoop loop(*loaded.engine,
                  {.batch = std::move(batch),
                   .draft = loaded.draft.get(),
                   .residency_check_ms = o.residency_check_ms,
                   .on_residency_lost = ask_to_stop,
                   .meters = meters_of(loaded.devices),
                   .may_step = gate ? [&gate] { return gate->may_step(); } : std::function<bool()>{}},
                  *loaded.tokenizer,
                  {.model_digest = health.model_digest,
                   .engine_build = health.engine_build,
                   .numerics = health.numerics,
                   .device_class = health.device_class,
                   .kv_dtype = health.kv_dtype,
                   .speculation = method},
                  clock);
  const auto hosts = o.advertise.empty() ? std::vector<std::string>{} : std::vector{o.advertise};
  net::Server server(network.runtime, {.component = "worker-orcd",
                                       .bind_address = o.bind,
                                       .port = o.port,
                                       .listener_fd = o.listen_fd,
                                       .auth = network.auth,
                                       .browsers = {.hosts = hosts, .cors_origins = {}},
                                       .request_bytes_max = kRequestBytesMax,
                                       // orchestratord, which may be short of memory for streams, takes an end late.
                                       .write_stall_timeout_ms = o.inference_timeout_s * 1000});
  add_routes(server, {.loop = loop,
                      .tokenizer = *loaded.tokenizer,
                      .clock = clock,
                      .entropy = entropy,
                      .request_runtime = request_runtime,
                      .health = health,
                      .vision = loaded.engine->vision(),
                      .context_tokens = *health.context_length,
                      .dimensions = pools(report.facts) ? report.facts.output_width : 0,
                      .scores = report.facts.scores,
                      .token_types = report.facts.token_types,
                      .timeout_ms_max = o.inference_timeout_s * 1000,
                      .ready_mono_ms = clock.now().mono_ms,
                      .on_shutdown = ask_to_stop});
  TRY(server.start());
  const std::string token = TRY(worker_token());
  TRY(self_test_http(network.client, {.url = net::http::base_url(net::http::local_host(o.bind), server.port()),
                                      .bearer = token,
                                      .embeds = pools(report.facts),
                                      .scores = report.facts.scores}));
  if (gate) gate->close_behind_self_test();
  if (!o.callback_url.empty() && o.advertise.empty() && net::http::is_unspecified(o.bind)) {
    return base::fail(
        ErrorCode::kConfigInvalid,
        "--bind is all addresses of this machine, and none that could be reported; name one with --advertise");
  }
  const std::string uri = net::http::base_url(o.advertise.empty() ? o.bind : o.advertise, server.port());
  if (!o.callback_url.empty()) TRY(report_ready(network.client, o, report, uri));
  base::log_event(LogLevel::kInfo, "ready", {}, "The worker serves.", {{"worker_id", o.worker_id}, {"uri", uri}});
  base::announce(base::Announce::kOut, fmt::format(R"({{"event":"listening","bind":"{}"}})", server.url().substr(7)));

  loading::WeightKeeper keeper(*loaded.engine, loaded.repack_cache, loaded.model_digest.substr(kSha256.size()));
  base::wait_for_stop_signal();
  base::log_event(LogLevel::kInfo, "shutdown", {}, "The worker stops.", {{"worker_id", o.worker_id}});
  loop.stop(o.shutdown_grace_ms);
  server.stop(1000);
  request_runtime.stop();
  network.runtime.stop();
  if (!loop.resident()) {
    return base::fail(ErrorCode::kCudaError, "memory of the model left the device; the log says which and whither");
  }
  return {};
}

}  // namespace

int run(const Options& options) {
  base::harden_process();
  base::block_stop_signals();
  base::init_logging({.component = "worker-orcd", .level = base::parse_log_level(options.log_level, LogLevel::kInfo)});
  base::log_event(LogLevel::kInfo, "startup", {}, "The worker starts.",
                  {{"worker_id", options.worker_id}, {"build", base::build_id()}});
  const auto outcome = [&]() -> base::Result<> {
    const std::string token = TRY(worker_token());
    Network network(TRY(net::http::rules_of_one_token(token, options.auth_optional_on_loopback)));
    KvLog kv_log;  // outlives the engine
    auto loaded = TRY(load(options, network.client));
    loaded.engine->kv().observe(&kv_log);
    TRY(self_test_engine(options, loaded));
    return serve(options, loaded, network);
  }();
  if (outcome) return 0;
  const base::Error& error = outcome.error();
  std::string numbers;
  for (const auto& [key, value] : error.details) {
    if (const auto* number = std::get_if<std::int64_t>(&value))
      numbers += fmt::format("{}{}={}", numbers.empty() ? "" : " ", key, *number);
  }
  base::log_event(LogLevel::kError, "error", {}, "The worker ends: it cannot serve.",
                  {{"code", error.name()},
                   {"message", error.message},
                   {"gpu_id", options.gpu_device},
                   {"model", options.model},
                   {"numbers", numbers}});
  return 1;
}

}  // namespace llorch::worker
