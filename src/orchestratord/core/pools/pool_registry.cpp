#include "orchestratord/core/pools/pool_registry.h"

#include <fmt/core.h>

#include <array>
#include <limits>
#include <tuple>
#include <utility>

#include "base/assert.h"
#include "wire/device_mask.h"

namespace llorch::orchestratord::core::pools {
namespace {

// Reports written before a start may still be on their way; two in a row that lack the worker are not.
constexpr int kAbsentReportsMax = 2;
// Reports are late by seconds; a pool restarts that often only when something is badly wrong.
constexpr std::size_t kOldBootsMax = 8;
// What comes from an earlier process this long after another one took its place was not late on its way: both live.
constexpr std::int64_t kLateReportMs = 30'000;
// As in a report: what a pool says between two reports adds no more.
constexpr std::size_t kWorkersMax = 1024;
constexpr std::size_t kMaskVersionsMax = 1024;

// Busy is ready without a free slot; the registry counts slots itself.
WorkerStatus normal(WorkerStatus status) { return status == WorkerStatus::kBusy ? WorkerStatus::kReady : status; }

const std::string& model_key(const Worker& w) {
  return w.info.model_digest.empty() ? w.info.model_ref : w.info.model_digest;
}

bool before(const Worker* a, const Worker* b) { return std::tie(a->pool_id, a->id) < std::tie(b->pool_id, b->id); }

// The least that a device has for one rank; `bytes` of all ranks that lie on it.
std::int64_t least_per_rank(const Place& place, std::int64_t (*bytes)(const Device&)) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const Device* device : place.devices) {
    least = std::min(least, bytes(*device) / std::ranges::count(place.devices, device));
  }
  return least;
}

// Numbers by value: "10" is no neighbour of "1".
bool numbered_before(const std::string* a, const std::string* b) {
  return std::pair(a->size(), std::string_view(*a)) < std::pair(b->size(), std::string_view(*b));
}

constexpr std::string_view kCpuDevice = "cpu";

bool has_devices(const Pool& pool, const std::string& mask) {
  const auto gpu_ids = wire::devices_of(mask);
  return std::ranges::all_of(gpu_ids, [&](const auto& gpu_id) { return pool.devices.contains(gpu_id); });
}

bool names(const wire::PoolState& state, const base::WorkerId& id) {
  return std::ranges::any_of(state.workers, [&](const auto& info) { return info.worker_id == id.value; });
}

}  // namespace

bool is_legal(WorkerStatus from, WorkerStatus to) {
  constexpr std::array<std::array<bool, 5>, 5> kLegal{{
      // starting ready busy draining failed
      {false, true, false, false, true},    // starting
      {false, false, true, true, true},     // ready
      {false, true, false, true, true},     // busy
      {false, false, false, false, true},   // draining
      {false, false, false, false, false},  // failed
  }};
  return kLegal[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

void Worker::doubt(std::int64_t now_ms) {
  reports_awaited = 2;
  doubted_ms = now_ms;
}

void Worker::connect_failed(std::int64_t begun_ms) {
  if (begun_ms >= doubted_ms) ++connects_failed;
}

void Worker::take(wire::WorkerInfo said) {
  if (devices.empty() || said.gpu_id != info.gpu_id) devices = wire::devices_of(said.gpu_id);
  info = std::move(said);
}

// A pool that does not say what lies where is taken to have shared out evenly.
std::int64_t Worker::bytes_on(const std::string& gpu_id) const {
  if (devices.size() == 1) return bytes();
  const auto& told = info.vram_bytes_by_device;
  std::int64_t sum = 0;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    if (devices[rank] != gpu_id) continue;
    sum += std::max(told.size() == devices.size() ? told[rank] : info.vram_bytes / std::ssize(devices), expected_bytes);
  }
  return sum;
}

// A report counts all of a worker's memory from the moment it names the worker, or none.
std::int64_t Worker::unreported_bytes_on(const std::string& gpu_id) const {
  if (devices.size() == 1) return std::max<std::int64_t>(0, bytes() - reported_bytes);
  return reported_bytes > 0 ? 0 : bytes_on(gpu_id);
}

bool Place::is_healthy() const {
  return std::ranges::all_of(devices, [](const Device* device) { return device->info.healthy; });
}
std::int64_t Place::free_bytes() const {
  return least_per_rank(*this, [](const Device& device) { return device.free_bytes(); });
}
std::int64_t Place::potential_bytes() const {
  return least_per_rank(*this, [](const Device& device) { return device.potential_bytes(); });
}
std::int64_t Place::total_bytes() const {
  return least_per_rank(*this, [](const Device& device) { return device.info.vram_total_bytes; });
}
const std::string* Place::version() const {
  if (devices.size() == 1) return devices.front()->version ? &*devices.front()->version : nullptr;
  const auto it = pool->mask_versions.find(mask);
  return it == pool->mask_versions.end() ? nullptr : &it->second.version;
}

std::vector<Place> places_for(const Pool& pool, std::int64_t devices_count, const std::optional<std::string>& mask) {
  std::vector<Place> places;
  const auto add = [&](std::vector<std::string> gpu_ids) {
    Place place{.pool = &pool, .mask = wire::mask_of(gpu_ids), .devices = {}};
    for (const std::string& gpu_id : gpu_ids) {
      const auto device = pool.devices.find(gpu_id);
      if (device == pool.devices.end()) return;
      place.devices.push_back(&device->second);
    }
    places.push_back(std::move(place));
  };
  if (mask) {
    auto gpu_ids = wire::devices_of(*mask);
    if (std::ssize(gpu_ids) == devices_count) add(std::move(gpu_ids));
    return places;
  }
  std::vector<const std::string*> gpus;
  for (const auto& [gpu_id, device] : pool.devices) {
    if (devices_count == 1) {
      add({gpu_id});
    } else if (device.info.vram_total_bytes == 0) {
      continue;  // stands for an engine elsewhere: no part of a model lies there
    } else if (gpu_id == kCpuDevice) {
      add(std::vector<std::string>(static_cast<std::size_t>(devices_count), gpu_id));
    } else {
      gpus.push_back(&gpu_id);
    }
  }
  std::ranges::sort(gpus, numbered_before);
  for (std::int64_t first = 0; first + devices_count <= std::ssize(gpus); ++first) {
    std::vector<std::string> gpu_ids;
    for (std::int64_t i = first; i < first + devices_count; ++i) gpu_ids.push_back(*gpus[static_cast<std::size_t>(i)]);
    add(std::move(gpu_ids));
  }
  return places;
}

std::int64_t Device::accounted_bytes() const {
  std::int64_t sum = 0;
  for (const Worker* w : workers) sum += w->bytes_on(info.gpu_id);
  return sum;
}

std::int64_t Device::free_bytes() const {
  std::int64_t not_reported = 0;
  for (const Worker* w : workers) not_reported += w->unreported_bytes_on(info.gpu_id);
  return std::max<std::int64_t>(
      0, std::min(info.vram_available_bytes - not_reported, info.vram_total_bytes - accounted_bytes()));
}

std::int64_t Device::potential_bytes() const {
  // While a worker loads, its memory is missing from "available" and not yet in "allocated": take the larger count of
  // what is ours, so that a passing moment never looks like a device that is too small.
  const std::int64_t ours = std::max(info.vram_allocated_bytes, accounted_bytes());
  return std::min(info.vram_total_bytes, info.vram_available_bytes + ours);
}

std::string version_of(const wire::WorkerInfo& info) {
  return fmt::format("{} {} {} {}", info.device_class, info.engine_build, info.numerics, info.sampler);
}

Pool* PoolRegistry::find_pool(const base::PoolId& id) {
  const auto it = pools_.find(id);
  return it == pools_.end() ? nullptr : &it->second;
}

Pool* PoolRegistry::pool_at(const std::string& endpoint) {
  for (auto& [id, pool] : pools_) {
    if (pool.endpoint == endpoint) return &pool;
  }
  return nullptr;
}

Worker* PoolRegistry::find_worker(const base::WorkerId& id) {
  const auto it = pool_of_.find(id);
  return it == pool_of_.end() ? nullptr : &pools_.at(it->second).workers.at(id);
}

const std::vector<Worker*>& PoolRegistry::workers_of(const std::string& model_digest) const {
  static const std::vector<Worker*> kNone;
  const auto it = by_model_.find(model_digest);
  return it == by_model_.end() ? kNone : it->second.workers;
}

std::size_t PoolRegistry::versions_count(const std::string& model_digest) const {
  const auto it = by_model_.find(model_digest);
  return it == by_model_.end() ? 0 : it->second.versions.size();
}

void PoolRegistry::index(Worker& worker) {
  Holders& holders = by_model_[model_key(worker)];
  auto& list = holders.workers;
  list.insert(std::lower_bound(list.begin(), list.end(), &worker, before), &worker);
  if (!worker.version.empty()) ++holders.versions[worker.version];
  for (Device* device : devices_at(pools_.at(worker.pool_id), worker.info.gpu_id)) {
    auto& on_device = device->workers;
    on_device.insert(std::lower_bound(on_device.begin(), on_device.end(), &worker, before), &worker);
  }
}

std::vector<Device*> PoolRegistry::devices_at(Pool& pool, const std::string& mask) {
  std::vector<Device*> devices;
  for (const std::string& gpu_id : wire::devices_of(mask)) {
    const auto it = pool.devices.find(gpu_id);
    if (it == pool.devices.end() || std::ranges::find(devices, &it->second) != devices.end()) continue;
    devices.push_back(&it->second);
  }
  return devices;
}

void PoolRegistry::unindex(const Worker& worker) {
  const auto remove_from = [&](std::vector<Worker*>& list) { std::erase(list, &worker); };
  if (const auto it = by_model_.find(model_key(worker)); it != by_model_.end()) {
    auto& [workers, versions] = it->second;
    remove_from(workers);
    if (const auto v = versions.find(worker.version); v != versions.end() && --v->second == 0) versions.erase(v);
    if (workers.empty()) by_model_.erase(it);
  }
  for (Device* device : devices_at(pools_.at(worker.pool_id), worker.info.gpu_id)) remove_from(device->workers);
}

GoneWorker PoolRegistry::gone_worker(const Worker& w, GoneWhy why) const {
  return {.id = w.id,
          .pool_id = w.pool_id,
          .gpu_id = w.info.gpu_id,
          .model_digest = w.wanted_digest.empty() ? w.info.model_digest : w.wanted_digest,
          .started_for = w.started_for,
          .why = why == GoneWhy::kFailed && w.stop_sent_ms ? GoneWhy::kStopped : why,
          .was = w.info.status,
          .bytes = w.bytes(),
          .reported_before = w.reported_gone,
          .is_foreign = w.is_foreign()};
}

GoneWorker PoolRegistry::erase(Pool& pool, const base::WorkerId& id, GoneWhy why, bool remember) {
  const auto it = pool.workers.find(id);
  ASSERT(it != pool.workers.end(), "worker {}", id.value);
  GoneWorker gone = gone_worker(it->second, why);
  unindex(it->second);
  pool_of_.erase(id);
  pool.workers.erase(it);
  if (remember) pool.gone.insert(id);
  return gone;
}

bool PoolRegistry::is_stale(const Pool& pool, const wire::PoolState& state) const {
  if (std::ranges::find(pool.old_boots, state.boot_id, &Pool::OldBoot::boot_id) != pool.old_boots.end()) return true;
  if (state.boot_id != pool.boot_id) return false;
  if (state.sequence > 0 && pool.last_sequence > 0) return state.sequence < pool.last_sequence;
  // Uptime first: a wall clock that was set back must not silence a pool.
  return std::tie(state.uptime_seconds, state.timestamp_ms) < std::tie(pool.last_uptime_s, pool.last_timestamp_ms);
}

Changes PoolRegistry::apply(const wire::PoolState& state, std::optional<std::int64_t> asked_ms, base::Time now) {
  Changes changes;
  const base::PoolId id(state.pool_id);
  if (Pool* known = find_pool(id)) {
    const bool other_process = known->endpoint != state.endpoint && known->boot_id != state.boot_id;
    if (other_process && known->status == PoolStatus::kHealthy) {
      changes.taken = Changes::Taken::kConflict;
      changes.conflicting_endpoint = known->endpoint;
      return changes;
    }
    const auto old = std::ranges::find(known->old_boots, state.boot_id, &Pool::OldBoot::boot_id);
    if (!asked_ms && old != known->old_boots.end() && now.mono_ms - old->replaced_ms > kLateReportMs) {
      changes.taken = Changes::Taken::kConflict;
      changes.conflicting_endpoint = known->endpoint;
      changes.was_replaced = true;
      return changes;
    }
    if (is_stale(*known, state)) {
      changes.taken = Changes::Taken::kStale;
      // An answer that was overtaken on its way still shows that calls reach the pool.
      const bool answers = asked_ms && state.boot_id == known->boot_id;
      if (answers) known->answered_ms = std::max(known->answered_ms, *asked_ms);
      if (answers && known->unreachable_since_ms) changes.recovered = note_contact(*known, asked_ms, now);
      return changes;
    }
  }
  std::vector<base::PoolId> replaced;
  for (const auto& [other_id, other] : pools_) {
    if (other.endpoint != state.endpoint || other_id == id) continue;
    if (other.status == PoolStatus::kHealthy) {
      changes.taken = Changes::Taken::kConflict;
      changes.conflicting_endpoint = other.endpoint;
      return changes;
    }
    replaced.push_back(other_id);
  }
  for (const base::PoolId& other : replaced) {
    for (GoneWorker& gone : drop_pool(other)) changes.gone.push_back(std::move(gone));
  }
  changes.replaced = std::move(replaced);

  const auto [it, is_new] = pools_.try_emplace(id);
  Pool& pool = it->second;
  changes.is_new = is_new;
  if (is_new) {
    pool.id = id;
    pool.registered_unix_ms = now.unix_ms;
  } else {
    changes.rebooted = pool.boot_id != state.boot_id;
    changes.moved = pool.endpoint != state.endpoint;
  }
  if (changes.rebooted) {
    std::vector<base::WorkerId> old;
    for (const auto& [worker_id, w] : pool.workers) {
      // A start still on its way may reach the new process, and one that it names has.
      if (w.answered && !names(state, worker_id)) old.push_back(worker_id);
    }
    for (const base::WorkerId& worker_id : old)
      changes.gone.push_back(erase(pool, worker_id, GoneWhy::kPoolLost, false));
    pool.gone.clear();
    pool.mask_versions.clear();
    pool.starts_hang = false;
    if (pool.old_boots.size() == kOldBootsMax) pool.old_boots.erase(pool.old_boots.begin());
    pool.old_boots.push_back({pool.boot_id, now.mono_ms});
  }
  pool.endpoint = state.endpoint;
  pool.version = state.version;
  pool.boot_id = state.boot_id;
  changes.recovered = note_contact(pool, asked_ms, now);
  pool.last_sequence = state.sequence;
  pool.staged_models = state.staged_models;
  pool.staging_bytes_max = state.staging_bytes_max;
  pool.last_timestamp_ms = state.timestamp_ms;
  pool.last_uptime_s = state.uptime_seconds;
  merge_workers(pool, state, asked_ms, now, changes);
  return changes;
}

// Whether it is healthy from now on and was not.
bool PoolRegistry::note_contact(Pool& pool, std::optional<std::int64_t> asked_ms, base::Time now) {
  pool.last_seen_ms = now.mono_ms;
  if (asked_ms) pool.answered_ms = std::max(pool.answered_ms, *asked_ms);
  if (asked_ms && *asked_ms >= pool.call_failed_ms) pool.unreachable_since_ms.reset();
  return !pool.unreachable_since_ms && std::exchange(pool.status, PoolStatus::kHealthy) == PoolStatus::kUnhealthy;
}

void PoolRegistry::merge_workers(Pool& pool, const wire::PoolState& state, std::optional<std::int64_t> asked_ms,
                                 base::Time now, Changes& changes) {
  // Workers are unhooked while the device list changes under them.
  for (auto& [id, w] : pool.workers) unindex(w);
  const auto before_it = std::exchange(pool.devices, {});
  for (const wire::GpuInfo& gpu : state.gpus) {
    Device& device = pool.devices[gpu.gpu_id];
    device.info = gpu;
    if (const auto old = before_it.find(gpu.gpu_id); old != before_it.end()) {
      device.disagreed_ms = old->second.disagreed_ms;
      if (!changes.rebooted) {
        device.version = old->second.version;
        device.version_class = old->second.version_class;
      }
    }
  }
  std::erase_if(pool.mask_versions, [&](const auto& item) { return !has_devices(pool, item.first); });
  for (auto& [id, w] : pool.workers) {
    w.reported_bytes = 0;
    index(w);
  }
  std::set<std::string> listed;
  for (const wire::WorkerInfo& info : state.workers) {
    listed.insert(info.worker_id);
    merge_worker(pool, info, asked_ms, now, changes);
  }
  std::erase_if(pool.gone, [&](const base::WorkerId& id) { return !listed.contains(id.value); });
  drop_absent(pool, listed, changes);
}

void PoolRegistry::merge_worker(Pool& pool, const wire::WorkerInfo& info, std::optional<std::int64_t> asked_ms,
                                base::Time now, Changes& changes) {
  const base::WorkerId id(info.worker_id);
  if (pool.gone.contains(id)) return;
  const auto known = pool_of_.find(id);
  if (known != pool_of_.end() && known->second != pool.id) return;  // ids are unique; the first holder keeps it
  const WorkerStatus said = normal(info.status);
  if (known == pool_of_.end()) {
    Worker& w = pool.workers[id];
    w.take(info);
    w.info.status = said;
    w.id = id;
    w.pool_id = pool.id;
    w.started_ms = w.last_used_ms = now.mono_ms;
    w.listed = true;
    w.reported_bytes = info.vram_bytes;
    w.reported_gone = said == WorkerStatus::kFailed;
    pool_of_.emplace(id, pool.id);
    index(w);
    changes.adopted.push_back(id);
    if (said != WorkerStatus::kReady) return;
    note_version(w);
    changes.became_ready.push_back(id);
    return;
  }
  Worker& w = pool.workers.at(id);
  const WorkerStatus was = w.info.status;
  w.listed = true;
  if (asked_ms && *asked_ms >= w.doubted_ms) w.pool_answered = w.connects_failed > 0;
  // What was asked at the failure is asked for each job that it ended, so only what was asked later counts as a report.
  if (!asked_ms || (w.port_is_doubted() && *asked_ms > w.doubted_ms)) {
    w.reports_awaited = std::max(0, w.reports_awaited - 1);
  } else if (*asked_ms >= w.doubted_ms && !w.port_is_doubted()) {
    w.reports_awaited = 0;
  }
  // What a pool has to give lacks what a worker was checked for, which is not in the figures of one that starts, or that ended so.
  w.reported_bytes = info.vram_bytes > 0 ? info.vram_bytes : w.bytes();
  // Its jobs go elsewhere now; its memory and its place on the device come back when its process is gone.
  if (said == WorkerStatus::kFailed) {
    if (!w.reported_gone) changes.gone.push_back(gone_worker(w, GoneWhy::kFailed));
    w.reported_gone = true;
    w.info.status = WorkerStatus::kFailed;
    w.reserved_by.reset();
    w.retiring = false;
    return;
  }
  // Written before the worker was ready: it lacks what the ready call told us.
  if (said == WorkerStatus::kStarting && was != WorkerStatus::kStarting) return;
  unindex(w);
  // Of a start of ours the device is the one that was asked for, and the model until it is ready; told once, it stays.
  const bool keeps_model = was != WorkerStatus::kStarting || (!w.is_foreign() && said == WorkerStatus::kStarting);
  wire::WorkerInfo news = info;
  if (!w.is_foreign()) news.gpu_id = w.info.gpu_id;
  if (news.model_digest.empty() || (keeps_model && !w.info.model_digest.empty())) {
    news.model_digest = w.info.model_digest;
  }
  w.take(std::move(news));
  // A report never takes a status back: ours may be newer.
  w.info.status = is_legal(was, said) ? said : was;
  index(w);
  if (said == WorkerStatus::kReady && w.version.empty()) note_version(w);
  if (was == WorkerStatus::kStarting && said == WorkerStatus::kReady) changes.became_ready.push_back(id);
}

void PoolRegistry::note_version(Worker& worker) {
  unindex(worker);
  worker.version = version_of(worker.info);
  index(worker);
  Pool& pool = pools_.at(worker.pool_id);
  if (worker.devices.size() > 1) {
    const std::string& mask = worker.info.gpu_id;
    const bool has_room = pool.mask_versions.size() < kMaskVersionsMax || pool.mask_versions.contains(mask);
    if (has_room && has_devices(pool, mask)) pool.mask_versions[mask] = {worker.version, worker.info.device_class};
  } else if (const auto it = pool.devices.find(worker.info.gpu_id); it != pool.devices.end()) {
    it->second.version = worker.version;
    it->second.version_class = worker.info.device_class;
  }
}

void PoolRegistry::drop_absent(Pool& pool, const std::set<std::string>& listed, Changes& changes) {
  std::vector<base::WorkerId> lost;
  for (auto& [id, w] : pool.workers) {
    if (listed.contains(id.value) || !w.answered) continue;
    if (w.listed || ++w.absent_reports >= kAbsentReportsMax) lost.push_back(id);
  }
  // Not remembered as gone: absence is our conclusion, and a newer report that names the worker overrules it.
  for (const base::WorkerId& id : lost) changes.gone.push_back(erase(pool, id, GoneWhy::kFailed, false));
}

Changes PoolRegistry::worker_ready(const wire::WorkerReady& ready, base::Time now) {
  Changes changes;
  Pool* pool = find_pool(base::PoolId(ready.pool_id));
  if (!pool) return changes;
  wire::WorkerInfo info = ready.worker;
  info.status = WorkerStatus::kReady;
  const base::WorkerId id(info.worker_id);
  const Worker* known = find_worker(id);
  if (!known && pool->workers.size() + pool->gone.size() >= kWorkersMax) return changes;  // the next report names it
  const bool listed = known && known->listed;
  const std::int64_t reported_bytes = known ? known->reported_bytes : 0;
  merge_worker(*pool, info, std::nullopt, now, changes);
  if (Worker* w = find_worker(id); w && w->pool_id == pool->id) {
    // This is not a report: the pool's memory figures in hand do not count the worker any better than before.
    w->listed = listed;
    w->reported_bytes = reported_bytes;
  }
  return changes;
}

std::optional<GoneWorker> PoolRegistry::worker_failed(const base::WorkerId& id, GoneWhy why) {
  const auto it = pool_of_.find(id);
  if (it == pool_of_.end()) return std::nullopt;
  return erase(pools_.at(it->second), id, why, true);
}

Worker& PoolRegistry::add_starting(const base::PoolId& pool_id, wire::WorkerInfo info, std::int64_t expected_bytes,
                                   base::Time now) {
  Pool& pool = pools_.at(pool_id);
  const base::WorkerId id(info.worker_id);
  ASSERT(has_devices(pool, info.gpu_id) && !pool_of_.contains(id), "worker {} gpu {}", id.value, info.gpu_id);
  Worker& w = pool.workers[id];
  w.take(std::move(info));
  w.info.status = WorkerStatus::kStarting;
  w.id = id;
  w.pool_id = pool_id;
  w.wanted_digest = w.info.model_digest;
  w.expected_bytes = expected_bytes;
  w.started_ms = w.last_used_ms = now.mono_ms;
  w.answered = false;
  pool_of_.emplace(id, pool_id);
  index(w);
  return w;
}

void PoolRegistry::forget_start(const base::WorkerId& id) {
  const auto it = pool_of_.find(id);
  if (it != pool_of_.end()) erase(pools_.at(it->second), id, GoneWhy::kFailed, false);
}

void PoolRegistry::set_status(Worker& worker, WorkerStatus status) {
  ASSERT(is_legal(worker.info.status, status), "worker {}: {} -> {}", worker.id.value,
         static_cast<int>(worker.info.status), static_cast<int>(status));
  worker.info.status = status;
}

std::vector<GoneWorker> PoolRegistry::drop_pool(const base::PoolId& id) {
  std::vector<GoneWorker> gone;
  const auto it = pools_.find(id);
  if (it == pools_.end()) return gone;
  while (!it->second.workers.empty()) {
    gone.push_back(erase(it->second, it->second.workers.begin()->first, GoneWhy::kPoolLost, false));
  }
  pools_.erase(it);
  return gone;
}

bool PoolRegistry::mark_unhealthy(const base::PoolId& id) {
  Pool* pool = find_pool(id);
  if (!pool || pool->status != PoolStatus::kHealthy) return false;
  pool->status = PoolStatus::kUnhealthy;
  return true;
}

void PoolRegistry::mark_unreachable(Pool& pool, base::Time now) {
  pool.call_failed_ms = now.mono_ms;
  if (pool.unreachable_since_ms) return;
  pool.unreachable_since_ms = now.mono_ms;
  pool.address_is_due = true;
}

}  // namespace llorch::orchestratord::core::pools
