#include "sim/world/worker.h"

#include <fmt/core.h>

#include <numeric>

#include "base/sha256.h"
#include "net/http/error_response.h"
#include "net/sse/sse.h"
#include "sim/world/pool.h"
#include "sim/world/world.h"
#include "wire/device_mask.h"
#include "wire/json.h"

namespace llorch::sim {

namespace wl = pool_managerd::worker_lifecycle;
using base::Error;
using base::ErrorCode;

namespace {
constexpr std::int64_t kReadyTimeoutMs = 30'000;
constexpr std::int64_t kShutdownGraceMs = 30'000;
}  // namespace

WorkerProcess::WorkerProcess(World& world, Pool& pool, wl::Spawn spawn, std::size_t port)
    : world_(world),
      pool_(pool),
      spawn_(std::move(spawn)),
      model_(world.model_of(spawn_.model_ref)),
      pool_life_(pool.process().life),
      build_(pool.build()),
      uri_(fmt::format("{}:{}", pool.endpoint(), port)),
      process_{.name = spawn_.worker_id.value, .host = pool.process().host},
      devices_(wire::devices_of(spawn_.gpu_id)) {}

void WorkerProcess::begin() {
  Dice& dice = world_.dice_processes;
  const FaultOptions& faults = world_.faults();
  const ModelOptions& model = world_.options.models[static_cast<std::size_t>(model_)];
  process_.start();
  started_ms_ = world_.loop.now_ms();
  // The plan predicts at most a little too much, never too little.
  for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
    actual_bytes_.push_back(model.bytes - dice.below(model.bytes / 1000) * 20);
  }
  load_ms_ = model.load_ms + dice.below(model.load_ms);
  if (dice.chance(faults.start_slow)) load_ms_ += dice.between(5'000, 40'000);
  diverges_ = dice.chance(faults.diverges);
  const bool hangs = dice.chance(faults.start_hangs);
  const bool out_of_memory = dice.chance(faults.start_out_of_memory);
  const bool fails = dice.chance(faults.start_fails);
  world_.loop.post(process_, load_ms_ * kMs / 3, [this, hangs, out_of_memory] {
    if (out_of_memory) {
      world_.oracle.reached("device out of memory at a start");
      return exit({.exit_code = 1, .logged_code = ErrorCode::kVramOom});
    }
    allocate();
    if (hangs) hang();
  });
  world_.loop.post(process_, load_ms_ * kMs, [this, fails, broken = model.broken] {
    if (broken) return exit({.exit_code = 1, .logged_code = ErrorCode::kCorruptFile});
    if (fails) return exit({.exit_code = 1});
    say_ready();
  });
}

void WorkerProcess::allocate() {
  held_bytes_ = actual_bytes_;
  pool_.allocated(*this);
}

std::int64_t WorkerProcess::held_bytes_on(const std::string& gpu_id) const {
  std::int64_t sum = 0;
  for (std::size_t rank = 0; rank < held_bytes_.size(); ++rank) sum += devices_[rank] == gpu_id ? held_bytes_[rank] : 0;
  return sum;
}

void WorkerProcess::say_ready() {
  const ModelOptions& model = world_.options.models[static_cast<std::size_t>(model_)];
  const std::int64_t bytes = std::accumulate(actual_bytes_.begin(), actual_bytes_.end(), std::int64_t{0});
  const wire::ReadyCallback callback{.worker_id = id(),
                                     .spawn_token = spawn_.spawn_token,
                                     .model_ref = spawn_.model_ref,
                                     .model_digest = model_digest_of(model.name),
                                     .uri = uri(),
                                     .vram_bytes = bytes,
                                     .memory_bytes = bytes,
                                     .vram_bytes_by_device = actual_bytes_,
                                     .slots_total = spawn_.model.shape.slots,
                                     .context_length = spawn_.model.shape.context_tokens,
                                     .engine_build = build_,
                                     .kv_dtype = spawn_.model.shape.kv_dtype};
  ready_ = true;  // it serves before it says so: the pool probes its health first
  call<bool>(
      world_.network, process_, pool_.process(), kReadyTimeoutMs,
      [this, callback](const Reply<bool>& reply) { pool_.worker_ready(callback, reply); },
      [this](const CallResult<bool>& accepted) {
        if (!accepted || !*accepted) exit({.exit_code = 1});
      });
}

wire::WorkerHealth WorkerProcess::health() const {
  const auto slots = spawn_.model.shape.slots;
  return {.status = "healthy",
          .worker_id = id(),
          .slots_total = slots,
          .slots_free = std::max<std::int64_t>(0, slots - static_cast<std::int64_t>(runs_.size()))};
}

void WorkerProcess::serve(HttpRequest request, const HttpReplyPtr& reply) {
  if (request.target == "/execute") {
    return execute(wire::decode<wire::ExecuteRequest>(request.body).value(), reply);
  }
  const auto asked = wire::decode<wire::WorkerCancelRequest>(request.body).value();
  const bool known = cancel(asked);
  reply->respond(net::http::json_response(
      202, wire::encode(wire::WorkerCancelReply{asked.job_id, known ? "cancelling" : "unknown"})));
}

void WorkerProcess::execute(const wire::ExecuteRequest& asked, const HttpReplyPtr& reply) {
  const auto refuse = [&](ErrorCode code) {
    reply->respond(net::http::error_response(Error{code, "the worker refuses", {}}, {}));
  };
  if (stopping_) return refuse(ErrorCode::kShuttingDown);
  for (const auto& [id, run] : runs_) {
    if (run.request.task_id == asked.job_id) return refuse(ErrorCode::kWorkerBusy);
  }
  if (static_cast<std::int64_t>(runs_.size()) >= spawn_.model.shape.slots) return refuse(ErrorCode::kWorkerBusy);
  JobRequest request;
  request.task_id = asked.job_id;
  request.tokens_in = static_cast<std::int64_t>(asked.prompt_tokens->size());
  request.max_tokens = asked.max_tokens;
  request.seed = *asked.seed;
  const std::uint64_t number = ++runs_count_;
  Run& run = runs_[number];
  run = {.request = request,
         .execution_id = asked.execution_id,
         .prompt_sha256 = asked.prompt_sha256.value_or(""),
         .parameters_sha256 = wire::parameters_sha256(asked.temperature, asked.sampling, asked.stop),
         .reply = reply,
         .tokens = tokens_count(request),
         .output_hash = {},
         .begun_ms = world_.loop.now_ms(),
         .deadline_ms = world_.loop.now_ms() + *asked.timeout_ms};
  if (world_.options.bug == InjectedBug::kReplayAppends) {
    run.shift = world_.bug_shift[asked.job_id];
    run.tokens = std::min(request.max_tokens, run.tokens + run.shift);
  }
  if (world_.dice_processes.chance(world_.faults().job_fails)) run.fails_at = world_.dice_processes.below(run.tokens);
  // A closed connection ends the job, within a step of the engine.
  reply->on_broken([this, number] {
    world_.loop.post(process_, world_.dice_processes.below(100 * kMs), [this, number] { finish(number); });
  });
  reply->start_stream();
  tell(run, "started", wire::encode(wire::StartedEvent{.job_id = asked.job_id, .seed = request.seed}));
  world_.loop.post(process_, world_.dice_processes.between(1, 2 * world_.options.work.token_ms) * kMs,
                   [this, number] { decode(number); });
}

std::string WorkerProcess::text_of(const Run& run, std::int64_t i) const {
  const std::string text = token_text(run.request, i < run.shift ? i : i - run.shift);
  return diverges_ && i >= kDivergesAt ? "other " + text : text;
}

void WorkerProcess::decode(std::uint64_t number) {
  const auto it = runs_.find(number);
  if (it == runs_.end()) return;
  Run& run = it->second;
  const auto fail = [&](ErrorCode code) {
    tell(run, "error", wire::encode(wire::error_body(Error{code, "in the middle of a job", {}}, {})));
    run.reply->end();
    finish(number);
  };
  if (world_.loop.now_ms() >= run.deadline_ms) return fail(ErrorCode::kTimeout);
  const std::int64_t step = world_.dice_processes.between(1, 3);
  std::int64_t count = 0;
  for (; run.next < run.tokens && count < step; ++count, ++run.next) {
    if (run.next == run.fails_at) return fail(ErrorCode::kVramOom);
    const std::string text = text_of(run, run.next);
    run.output_hash.update(text);
    const std::int64_t id = base::sha256(text)[0];
    tell(run, "token", wire::encode(wire::WorkerTokenEvent{.t = text, .i = run.next, .id = id, .logprobs = {}}));
  }
  if (run.next < run.tokens) {
    return world_.loop.post(process_, count * world_.options.work.token_ms * kMs, [this, number] { decode(number); });
  }
  wire::EndEvent end{.job_id = run.request.task_id,
                     .tokens_in = run.request.tokens_in,
                     .tokens_out = run.tokens,
                     .decode_time_ms = world_.loop.now_ms() - run.begun_ms};
  wire::Receipt& receipt = end.receipt.emplace();
  receipt.model_digest = model_digest_of(world_.options.models[static_cast<std::size_t>(model_)].name);
  receipt.seed = run.request.seed;
  receipt.prompt_sha256 = run.prompt_sha256;
  receipt.parameters_sha256 = run.parameters_sha256;
  receipt.output_sha256 = base::to_hex(run.output_hash.digest());
  receipt.tokens_out = run.tokens;
  tell(run, "end", wire::encode(end));
  run.reply->end();
  finish(number);
}

void WorkerProcess::tell(const Run& run, std::string_view event, const std::string& json) {
  std::string bytes;
  net::sse::append_event(bytes, {.event = event, .id = {}, .data = json});
  run.reply->write(bytes);
}

void WorkerProcess::finish(std::uint64_t number) {
  runs_.erase(number);
  exit_when_idle();
}

bool WorkerProcess::cancel(const wire::WorkerCancelRequest& asked) {
  for (const auto& [number, run] : runs_) {
    if (run.request.task_id != asked.job_id || run.execution_id != asked.execution_id) continue;
    cancel(number);
    return true;
  }
  return false;
}

void WorkerProcess::cancel(std::uint64_t number) {
  const Run& run = runs_.at(number);
  tell(run, "error", wire::encode(wire::error_body(Error{ErrorCode::kCancelled, "cancelled", {}}, {})));
  run.reply->end();
  finish(number);
}

void WorkerProcess::shut_down() {
  if (std::exchange(stopping_, true)) return;
  told_to_go_ = true;
  world_.loop.post(process_, kShutdownGraceMs * kMs, [this] { terminate(); });
  exit_when_idle();
}

void WorkerProcess::exit_when_idle() {
  if (!stopping_ || !runs_.empty() || !running()) return;
  world_.loop.post(process_, world_.dice_processes.between(1, 200) * kMs, [this] { exit({.exit_code = 0}); });
}

void WorkerProcess::terminate() {
  told_to_go_ = true;
  if (hung()) return;
  world_.loop.post(process_, world_.dice_processes.below(300 * kMs), [this] {
    stopping_ = true;
    while (!runs_.empty()) cancel(std::uint64_t{runs_.begin()->first});
    exit({.exit_code = 0});
  });
}

void WorkerProcess::kill() {
  told_to_go_ = true;
  exit({.exit_code = 137, .signal = 9});
}

void WorkerProcess::crash() {
  world_.oracle.reached(busy() ? "worker crashed while busy" : "worker crashed while loading");
  exit({.exit_code = 139, .signal = 11});
}

// The connections break now; memory and process are gone when the kernel and the driver have cleaned up.
void WorkerProcess::exit(wl::ExitFacts facts) {
  if (!running()) return;
  process_.alive = false;
  world_.trace("worker exits", id(), facts.exit_code);
  world_.network.died(process_);
  runs_.clear();
  std::int64_t linger_us = world_.dice_processes.between(1, 100) * kMs;
  if (!held_bytes_.empty() && world_.dice_processes.chance(world_.faults().exit_slow)) {
    linger_us = world_.dice_processes.between(1'000, 8'000) * kMs;
    world_.oracle.reached("memory of a dead worker held on");
  }
  world_.loop.at(world_.loop.now_us() + linger_us, [this, facts] {
    pool_.freed(*this);
    held_bytes_.clear();
    pool_.worker_exited(*this, facts);
  });
}

}  // namespace llorch::sim
