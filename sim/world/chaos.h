#pragma once
// What goes wrong, and when. Draws faults at the rates of the options until the world is healed.
#include <cstdint>
#include <functional>

namespace llorch::sim {

struct Process;
struct World;

class Chaos {
 public:
  explicit Chaos(World& world) : world_(world) {}
  // REQUIRES: outlives the world's events until heal().
  void begin();

 private:
  void repeat(std::int64_t mean_ms, void (Chaos::*fault)());
  void hang(Process& process, std::int64_t for_ms);
  void crash_orchestrator();
  void hang_orchestrator();
  void crash_pool();
  void hang_pool();
  void crash_worker();
  void hang_worker();
  void lose_device();
  void partition();
  void block_calls();
  void reset();
  void fill_disk();
  void set_a_clock();
  std::size_t any_pool();

  World& world_;
};

}  // namespace llorch::sim
