#include "sim/world/chaos.h"

#include <algorithm>

#include "sim/world/world.h"

namespace llorch::sim {

void Chaos::begin() {
  const FaultOptions& f = world_.options.faults;
  repeat(f.orchestrator_crash_ms, &Chaos::crash_orchestrator);
  repeat(f.orchestrator_hang_ms, &Chaos::hang_orchestrator);
  repeat(f.pool_crash_ms, &Chaos::crash_pool);
  repeat(f.pool_hang_ms, &Chaos::hang_pool);
  repeat(f.worker_crash_ms, &Chaos::crash_worker);
  repeat(f.worker_hang_ms, &Chaos::hang_worker);
  repeat(f.device_lost_ms, &Chaos::lose_device);
  repeat(f.partition_ms, &Chaos::partition);
  repeat(f.one_way_ms, &Chaos::block_calls);
  repeat(f.reset_ms, &Chaos::reset);
  repeat(f.disk_refuses_ms, &Chaos::fill_disk);
  repeat(f.clock_jump_ms, &Chaos::set_a_clock);
}

void Chaos::repeat(std::int64_t mean_ms, void (Chaos::*fault)()) {
  if (mean_ms == 0) return;
  const std::int64_t in_ms = world_.dice_faults.between(1, 2 * mean_ms);
  world_.loop.at(world_.loop.now_us() + in_ms * kMs, [this, mean_ms, fault, &world = world_] {
    if (world.healed()) return;  // `this` may be gone
    (this->*fault)();
    repeat(mean_ms, fault);
  });
}

std::size_t Chaos::any_pool() {
  return static_cast<std::size_t>(world_.dice_faults.below(static_cast<std::int64_t>(world_.pools.size())));
}

void Chaos::crash_orchestrator() { world_.crash_orchestrator(); }

// A second hang never ends the first one early: what was put off to its end would come late.
void Chaos::hang(Process& process, std::int64_t for_ms) {
  process.hung_until_us = std::max(process.hung_until_us, world_.loop.now_us() + for_ms * kMs);
}

void Chaos::hang_orchestrator() {
  world_.oracle.reached("orchestratord hung");
  hang(world_.orchestrator_process, world_.dice_faults.between(100, 20'000));
}

void Chaos::crash_pool() { world_.pools[any_pool()]->crash(); }

void Chaos::hang_pool() {
  world_.oracle.reached("pool hung");
  Process& process = world_.pools[any_pool()]->process();
  hang(process, world_.dice_faults.between(100, 60'000));
}

void Chaos::crash_worker() {
  const auto workers = world_.pools[any_pool()]->workers();
  if (workers.empty()) return;
  workers[static_cast<std::size_t>(world_.dice_faults.below(static_cast<std::int64_t>(workers.size())))]->crash();
}

void Chaos::hang_worker() {
  const auto workers = world_.pools[any_pool()]->workers();
  if (workers.empty()) return;
  workers[static_cast<std::size_t>(world_.dice_faults.below(static_cast<std::int64_t>(workers.size())))]->hang();
}

void Chaos::lose_device() {
  Pool& pool = *world_.pools[any_pool()];
  const std::int64_t for_ms = world_.dice_faults.between(1'000, 20'000);
  pool.lose_device(static_cast<std::size_t>(world_.dice_faults.below(pool.devices_count())), for_ms);
}

void Chaos::partition() {
  world_.oracle.reached("partition");
  const std::int64_t until_us = world_.loop.now_us() + world_.dice_faults.between(200, 70'000) * kMs;
  const bool clients = world_.dice_faults.chance(300);
  world_.network.partition(0, clients ? kClientsHost : 1 + static_cast<int>(any_pool()), until_us);
}

void Chaos::block_calls() {
  world_.oracle.reached("calls to a pool blocked");
  const std::int64_t until_us = world_.loop.now_us() + world_.dice_faults.between(1'000, 90'000) * kMs;
  world_.network.block(0, 1 + static_cast<int>(any_pool()), until_us);
}

void Chaos::reset() {
  const std::int64_t count = world_.dice_faults.between(1, 3);
  for (std::int64_t i = 0; i < count; ++i) {
    if (world_.network.reset_one()) world_.oracle.reached("connection reset");
  }
}

void Chaos::fill_disk() {
  world_.disk_fault = static_cast<orchestratord::store::testing::Fault>(world_.dice_faults.between(1, 5));
  world_.disk_refuses_until_ms = world_.loop.now_ms() + world_.dice_faults.between(100, 15'000);
}

// Forth or back by up to an hour, of orchestratord's host or of a pool's.
void Chaos::set_a_clock() {
  world_.oracle.reached("wall clock set");
  Process& process = world_.dice_faults.chance(500) ? world_.orchestrator_process : world_.pools[any_pool()]->process();
  process.wall_skew_ms += world_.dice_faults.between(-3'600'000, 3'600'000);
}

}  // namespace llorch::sim
