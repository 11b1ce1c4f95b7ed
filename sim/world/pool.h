#pragma once
// One pool-managerd with its host: the real lifecycle and registration cores, devices with memory, worker processes. When
// the daemon dies its workers die with it; their memory is free a little later, as with real processes.
//
// The devices check that nothing more is allocated than they have, that what the lifecycle accounts covers what is held,
// that one load per model and device runs, and that no worker is killed that works.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/entropy.h"
#include "net/http/url.h"
#include "pool_managerd/registration/registration.h"
#include "pool_managerd/worker_lifecycle/lifecycle.h"
#include "sim/kernel/network.h"
#include "sim/world/http.h"
#include "sim/world/options.h"
#include "sim/world/worker.h"

namespace llorch::sim {

class Pool final : public HttpServer {
 public:
  Pool(World& world, std::size_t index);

  Process& process() override { return process_; }
  const std::string& build() const { return life_->build; }
  const std::string& endpoint() const { return endpoint_; }
  std::int64_t devices_count() const { return std::ssize(devices_); }

  void start();
  void crash();
  void lose_device(std::size_t device, std::int64_t for_ms);
  void heal();
  // The processes of its host that run, in order of their start.
  std::vector<WorkerProcess*> workers() const;

  // ---- its HTTP API, called in its process ----
  using MaybeError = std::optional<base::Error>;
  void serve(HttpRequest request, const HttpReplyPtr& reply) override;
  void worker_ready(const wire::ReadyCallback& callback, Reply<bool> reply);

  // ---- its host ----
  void allocated(const WorkerProcess& worker);
  void freed(const WorkerProcess& worker);
  void worker_exited(const WorkerProcess& worker, const pool_managerd::worker_lifecycle::ExitFacts& facts);

 private:
  struct Device {
    DeviceOptions options;
    std::int64_t used_bytes = 0;
    std::int64_t lost_until_ms = 0;
  };
  // What only this process knows of a worker, for the check of its death.
  struct Known {
    bool stop_asked = false;
    std::string mask;  // of an injected bug: what the worker has in fact
    int misses = 0;
  };
  struct Life {
    Life(pool_managerd::worker_lifecycle::LifecycleConfig config, base::Entropy& entropy,
         pool_managerd::registration::RegistrationConfig registration_config)
        : lifecycle(std::move(config), entropy), registration(registration_config) {}
    pool_managerd::worker_lifecycle::Lifecycle lifecycle;
    pool_managerd::registration::Registration registration;
    std::map<pool_managerd::worker_lifecycle::RequestId, std::function<void(MaybeError)>> requests;
    std::map<std::string, Known> known;
    std::uint64_t requests_count = 0;
    std::int64_t reports_count = 0;
    std::string boot_id;
    std::string build;  // of its workers
    std::int64_t started_ms = 0;
  };

  wire::PoolState state();
  void describe(const net::http::Target& target, const HttpReplyPtr& reply) const;
  void start_worker(const wire::StartWorkerRequest& wanted, const HttpReplyPtr& reply);
  void stop_worker(const std::string& worker, const HttpReplyPtr& reply);
  void step(const pool_managerd::worker_lifecycle::Event& event);
  void execute(const pool_managerd::worker_lifecycle::Answer& c);
  void execute(const pool_managerd::worker_lifecycle::Refuse& c);
  void execute(const pool_managerd::worker_lifecycle::Spawn& c);
  void execute(const pool_managerd::worker_lifecycle::Probe& c);
  void execute(const pool_managerd::worker_lifecycle::PostShutdown& c);
  void execute(const pool_managerd::worker_lifecycle::SendSignal& c);
  void execute(const pool_managerd::worker_lifecycle::ReportReady& c);
  void execute(const pool_managerd::worker_lifecycle::ReportFailed& c);
  void execute(const pool_managerd::worker_lifecycle::CheckDigest&) {}  // its workers tell no stamp
  void execute(const pool_managerd::worker_lifecycle::PushState& c);
  void execute(const pool_managerd::worker_lifecycle::Note& c);

  void link(const pool_managerd::registration::Event& event);
  void send(const pool_managerd::registration::SendRegister& c);
  void send(const pool_managerd::registration::SendHeartbeat& c);
  void send(const pool_managerd::registration::SendReport& c);
  void send(const pool_managerd::registration::SendDeregister& c);
  void send(const pool_managerd::registration::ConnectionChanged& c);

  pool_managerd::worker_lifecycle::RequestId remember(std::function<void(MaybeError)> reply);
  std::vector<pool_managerd::gpu_inventory::Device> read_devices() const;
  void refresh_devices();
  void arm();
  void wake(std::uint64_t ticket);
  void check_memory();
  WorkerProcess* find(const std::string& worker) const;
  WorkerProcess* spawn(const pool_managerd::worker_lifecycle::Spawn& c);
  std::set<std::size_t> devices_of(const WorkerProcess& worker) const;
  bool healthy(const Device& device) const;
  bool is_well(const WorkerProcess& worker) const;
  void check_lost();

  World& world_;
  const std::size_t index_;
  const std::string pool_id_, endpoint_;
  Process process_;
  std::vector<Device> devices_;
  base::SeededEntropy entropy_;
  std::unique_ptr<Life> life_;
  std::vector<std::unique_ptr<WorkerProcess>> processes_;  // all there ever were
  std::uint64_t wakes_ = 0;
  std::int64_t next_wake_ms_ = 0;
};

}  // namespace llorch::sim
