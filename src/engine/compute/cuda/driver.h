#pragma once
// What the CUDA backend asks of a machine: memory, copies, launches. There are two: the CUDA runtime (runtime/), and plain
// host memory and loops (emulation/), which tests use to run every kernel where there is no GPU.
//
// Device memory is what malloc() gives and nothing else: no managed, mapped or host-registered memory exists at this door.
// Everything but malloc, free, make_graph and synchronize is enqueued on the driver's one stream, in order. Thread rule: one at a time.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "engine/compute/cuda/kernels/registry.h"

namespace llorch::engine::compute::cuda {

struct Grid {
  std::uint32_t x = 1, y = 1, z = 1;
};

struct Launch {
  kernels::KernelId kernel{};
  Grid grid;
  std::span<const std::byte> args;  // the kernel's Args
};

// Launches that a machine keeps ready to be sent as one, with their arguments. May be let go while it runs.
class Graph {
 public:
  virtual ~Graph() = default;
};

struct DeviceInfo {
  std::string name;  // as the vendor writes it
  std::uint32_t compute_major = 0;
  std::uint32_t compute_minor = 0;
  std::uint64_t memory_bytes = 0;
};

// Where an address is. Only kThisDevice is where weights and caches may be.
enum class Residency : std::uint8_t { kThisDevice, kOtherDevice, kManaged, kHost, kUnknown };

// Host memory locked in place, so that copies run from it and to it while the host goes on. It is an end of copies and never
// an operand: no kernel is given an address in it, and nothing that is computed with stays in it. What the ban on memory
// outside the device means by that: docs/internals/memory.md.
class Staging {
 public:
  virtual ~Staging() = default;              // REQUIRES: no copy from or to it is under way
  virtual std::span<std::byte> bytes() = 0;  // aligned to 4096
};

// A place in the stream that the host can wait for.
class Event {
 public:
  virtual ~Event() = default;
};

class Driver {
 public:
  virtual ~Driver() = default;

  virtual const DeviceInfo& info() const = 0;
  virtual std::uint64_t free_memory_bytes() = 0;
  virtual Residency residency(const std::byte* ptr) = 0;

  // Null when the device has none left. Aligned to 256 bytes, contents undefined.
  virtual std::byte* malloc(std::uint64_t bytes) = 0;
  virtual void free(std::byte* ptr) noexcept = 0;

  // The host bytes may change once the call has returned.
  virtual void copy_to_device(std::byte* device, std::span<const std::byte> host) noexcept = 0;
  // Returns when the bytes are there.
  virtual void copy_to_host(std::span<std::byte> host, const std::byte* device) noexcept = 0;
  virtual void copy_on_device(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept = 0;
  virtual void zero(std::byte* device, std::uint64_t bytes) noexcept = 0;

  // Null when the host has no more memory to lock. Both end before the driver.
  virtual std::unique_ptr<Staging> make_staging(std::uint64_t bytes) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  // One that knows when it was passed.
  virtual std::unique_ptr<Event> make_timed_event() = 0;
  // Of the device's time. REQUIRES: both timed, recorded and waited for.
  virtual double seconds_between(Event& from, Event& to) = 0;
  // Enqueued like the others, and return at once: the staged bytes belong to the copy until an event recorded behind it has
  // been waited for. REQUIRES: within one Staging of this driver.
  virtual void copy_from_staging(std::byte* device, std::span<const std::byte> staged) noexcept = 0;
  virtual void copy_to_staging(std::span<std::byte> staged, const std::byte* device) noexcept = 0;
  virtual void record(Event& event) noexcept = 0;
  // Returns when everything enqueued before the last record() is done; at once when there was none. What failed shows in
  // is_healthy().
  virtual void wait(Event& event) noexcept = 0;

  // kernels::kArrivalCounters counters at which blocks of a kernel arrive (kernels/block.h), of the driver's own device memory: zero whenever no
  // kernel runs.
  virtual std::uint32_t* arrival_counters() noexcept = 0;

  // `args` is the kernel's Args. REQUIRES: no dimension of the grid is 0.
  virtual void launch(kernels::KernelId kernel, const Grid& grid, const void* args) noexcept = 0;

  // Enqueues nothing. Null when the machine cannot make one; it goes on as before.
  virtual std::unique_ptr<Graph> make_graph(std::span<const Launch> launches) noexcept = 0;
  // REQUIRES: of this driver's make_graph().
  virtual void launch(Graph& graph) noexcept = 0;

  // False once anything enqueued could not be: the first such failure stays until the driver ends.
  virtual bool is_healthy() const noexcept = 0;
  // Waits for everything enqueued. Errors: CUDA_ERROR with what the device said.
  virtual base::Result<> synchronize() = 0;
};

}  // namespace llorch::engine::compute::cuda
