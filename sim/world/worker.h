#pragma once
// One worker process: loads a model onto a device, says ready, runs jobs. Its tokens are the pure function of
// world/request.h. It may crash, hang, run out of memory, be slow to start and slow to die.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/sha256.h"
#include "pool_managerd/worker_lifecycle/lifecycle.h"
#include "sim/world/http.h"
#include "sim/world/request.h"
#include "wire/task.h"
#include "wire/worker.h"

namespace llorch::sim {

struct World;
class Pool;

class WorkerProcess final : public HttpServer {
 public:
  // `port`: no other process of its host has it.
  WorkerProcess(World& world, Pool& pool, pool_managerd::worker_lifecycle::Spawn spawn, std::size_t port);

  Process& process() override { return process_; }
  const std::string& id() const { return spawn_.worker_id.value; }
  int model() const { return model_; }
  const std::string& uri() const { return uri_; }  // on the host of its pool
  std::uint64_t pool_life() const { return pool_life_; }
  const std::vector<std::string>& devices() const { return devices_; }  // by rank
  bool is_on(const std::string& gpu_id) const { return std::ranges::count(devices_, gpu_id) > 0; }
  std::int64_t held_bytes_on(const std::string& gpu_id) const;
  bool running() const { return process_.alive; }
  bool loading() const { return running() && !ready_ && !told_to_go_; }
  bool told_to_go() const { return told_to_go_; }
  bool busy() const { return !runs_.empty(); }
  bool hung() const { return process_.hung_until_us == kForever; }
  std::int64_t started_ms() const { return started_ms_; }

  void begin();
  // ---- its HTTP API, called in its process ----
  void serve(HttpRequest request, const HttpReplyPtr& reply) override;
  wire::WorkerHealth health() const;
  void shut_down();
  // ---- what happens to it ----
  void terminate();  // SIGTERM
  void kill();       // SIGKILL
  void crash();
  void hang() { process_.hung_until_us = kForever; }

 private:
  struct Run {
    JobRequest request;  // as far as its tokens depend on it
    std::optional<std::string> execution_id;
    std::string prompt_sha256, parameters_sha256;
    HttpReplyPtr reply;
    std::int64_t next = 0, tokens = 0;
    std::int64_t shift = 0;  // of an injected bug: tokens of an earlier attempt, sent before its own
    base::Sha256 output_hash;
    std::int64_t begun_ms = 0, deadline_ms = 0;
    std::int64_t fails_at = -1;
  };

  void allocate();
  void say_ready();
  void execute(const wire::ExecuteRequest& request, const HttpReplyPtr& reply);
  bool cancel(const wire::WorkerCancelRequest& asked);
  void cancel(std::uint64_t run);
  static void tell(const Run& run, std::string_view event, const std::string& json);
  void decode(std::uint64_t run);
  void finish(std::uint64_t run);
  void exit(pool_managerd::worker_lifecycle::ExitFacts facts);
  void exit_when_idle();
  std::string text_of(const Run& run, std::int64_t i) const;

  World& world_;
  Pool& pool_;
  const pool_managerd::worker_lifecycle::Spawn spawn_;
  const int model_;
  const std::uint64_t pool_life_;
  const std::string build_, uri_;
  Process process_;
  const std::vector<std::string> devices_;
  std::vector<std::int64_t> actual_bytes_, held_bytes_;  // by rank; nothing held: empty
  std::int64_t started_ms_ = 0, load_ms_ = 0;
  bool ready_ = false, stopping_ = false, told_to_go_ = false, diverges_ = false;
  std::map<std::uint64_t, Run> runs_;
  std::uint64_t runs_count_ = 0;
};

}  // namespace llorch::sim
