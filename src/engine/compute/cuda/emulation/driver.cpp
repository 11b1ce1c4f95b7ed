#include "engine/compute/cuda/emulation/driver.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/assert.h"
#include "engine/compute/cuda/backend.h"
#include "engine/compute/cuda/emulation/apart.h"

namespace llorch::engine::compute::cuda::emulation {
namespace {

using kernels::AllKernels;
using kernels::BlockIndex;
using kernels::HostBlock;

// Device memory as a block finds it that begins before the kernel before has ended.
class Overlap final : public kernels::EarlierKernels {
 public:
  explicit Overlap(const std::map<std::byte*, std::uint64_t>& allocations) : allocations_(allocations) {}

  // A kernel begins: all that was written before it is there, but not yet to those that begin early.
  void begin_kernel() { before_ = std::exchange(begun_, contents()); }
  void begin_block() {
    now_ = contents();
    put(before_);
    shown_ = contents();
  }
  void arrive() override {
    ASSERT(contents() == shown_, "a block wrote to device memory before it waited");
    put(now_);
  }

 private:
  using Contents = std::map<std::byte*, std::vector<std::byte>>;
  Contents contents() const {
    Contents all;
    for (const auto& [ptr, bytes] : allocations_) all.emplace(ptr, std::vector<std::byte>(ptr, ptr + bytes));
    return all;
  }
  // What was allocated since stays as it is.
  void put(const Contents& all) {
    for (const auto& [ptr, bytes] : all)
      if (const auto it = allocations_.find(ptr); it != allocations_.end() && it->second == bytes.size())
        std::ranges::copy(bytes, ptr);
  }

  const std::map<std::byte*, std::uint64_t>& allocations_;
  Contents begun_;   // when the kernel began
  Contents before_;  // when the one before it did
  Contents now_;     // what the block must not see yet
  Contents shown_;   // what it sees instead
};

// How the blocks of a launch are run.
struct Run {
  kernels::ThreadOrder order = kernels::ThreadOrder::kForwards;
  std::uint32_t seed = 0;
  std::uint32_t host_threads = 1;
  Overlap* overlap = nullptr;
};
using RunFn = void (*)(const Grid&, const void* args, const Run& run);

// Shared memory begins as bytes no kernel may count on.
constexpr int kGarbage = 0xFF;

template <class Kernel>
void run_block(const Grid& grid, const typename Kernel::Args& args, const Run& run, std::uint32_t at) {
  typename Kernel::Shared shared;
  std::memset(static_cast<void*>(&shared), kGarbage, sizeof shared);
  Overlap* early = kernels::StartsEarly<Kernel> ? run.overlap : nullptr;
  HostBlock<Kernel::kThreads> block({at % grid.x, at / grid.x % grid.y, at / grid.x / grid.y},
                                    {.order = run.order, .seed = run.seed ^ at * 0x9E3779B9u, .earlier = early});
  if (early != nullptr) early->begin_block();
  kernels::run_block<Kernel>(block, shared, args);
  ASSERT(block.has_waited(), "kernel {}: block {} ended without waiting for the stream",
         static_cast<int>(kernels::kernel_id<Kernel>()), at);
}

// Blocks as a launch takes them up.
std::vector<std::uint32_t> blocks_in_order(std::uint32_t count, const Run& run) {
  std::vector<std::uint32_t> blocks(count);
  std::iota(blocks.begin(), blocks.end(), 0u);
  if (run.order == kernels::ThreadOrder::kBackwards) std::ranges::reverse(blocks);
  if (run.order == kernels::ThreadOrder::kMixed) std::ranges::shuffle(blocks, std::minstd_rand(run.seed));
  return blocks;
}

template <class Kernel>
void run_grid(const Grid& grid, const void* args, const Run& run) {
  typename Kernel::Args own;
  std::memcpy(&own, args, sizeof own);  // as a launch copies them
  const std::vector<std::uint32_t> blocks = blocks_in_order(grid.x * grid.y * grid.z, run);
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < blocks.size(); i = next++) run_block<Kernel>(grid, own, run, blocks[i]);
  };
  std::vector<std::jthread> others;
  while (others.size() + 1 < std::min<std::size_t>(run.host_threads, blocks.size())) others.emplace_back(work);
  work();
}

// Threads of the host may fill one part of it while a kernel runs, so kernels are kept away from it by their arguments.
class EmulatedStaging final : public Staging {
 public:
  explicit EmulatedStaging(std::span<std::byte> bytes, std::set<EmulatedStaging*>& all) : bytes_(bytes), all_(all) {
    all_.insert(this);
  }
  ~EmulatedStaging() override {
    all_.erase(this);
    ::munmap(bytes_.data(), bytes_.size());
  }
  std::span<std::byte> bytes() override { return bytes_; }
  bool holds(std::span<const std::byte> part) const {
    return part.data() >= bytes_.data() && part.data() + part.size() <= bytes_.data() + bytes_.size();
  }

 private:
  std::span<std::byte> bytes_;
  std::set<EmulatedStaging*>& all_;
};

struct EmulatedEvent final : Event {
  std::uint64_t copies_before = 0;
  std::uint64_t sent_before = 0;
  std::uint64_t kernels_before = 0;
};

// A copy to staging that nobody has waited for yet.
struct OpenCopy {
  std::span<std::byte> to;
  std::vector<std::byte> bytes;
};

// A copy from staging that nobody has waited for yet: a device may read it as late as that.
struct SentCopy {
  std::uint64_t number;
  std::span<const std::byte> from;
  std::vector<std::byte> bytes;
};

// Launches with bytes of their own: what the maker does to its arguments afterwards does not show.
struct EmulatedGraph final : Graph {
  struct Node {
    kernels::KernelId kernel;
    Grid grid;
    std::vector<std::byte> args;
  };
  std::vector<Node> nodes;
};

class EmulatedDriver final : public Driver {
 public:
  using Driver::launch;

  explicit EmulatedDriver(const EmulationOptions& options)
      : options_(options),
        info_{.name = "emulated", .compute_major = 9, .compute_minor = 0, .memory_bytes = options.memory_bytes},
        run_(AllKernels::table<RunFn>([]<class Kernel>() -> RunFn { return run_grid<Kernel>; })),
        args_bytes_(AllKernels::table<std::size_t>([]<class Kernel>() { return sizeof(typename Kernel::Args); })) {}
  ~EmulatedDriver() override { ASSERT(allocations_.empty(), "{} allocations left", allocations_.size()); }

  const DeviceInfo& info() const override { return info_; }
  std::uint64_t free_memory_bytes() override { return options_.memory_bytes - used_bytes_; }
  Residency residency(const std::byte* ptr) override {
    auto it = allocations_.upper_bound(const_cast<std::byte*>(ptr));
    if (it == allocations_.begin()) return Residency::kHost;
    --it;
    return ptr < it->first + it->second ? Residency::kThisDevice : Residency::kHost;
  }

  std::byte* malloc(std::uint64_t bytes) override {
    if (bytes > free_memory_bytes()) return nullptr;
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    auto* ptr = static_cast<std::byte*>(memory);
    allocations_.emplace(ptr, bytes);
    used_bytes_ += bytes;
    return ptr;
  }
  void free(std::byte* ptr) noexcept override {
    const auto it = allocations_.find(ptr);
    ASSERT(it != allocations_.end(), "no memory of this device");
    used_bytes_ -= it->second;
    ::munmap(ptr, it->second);
    allocations_.erase(it);
  }

  void copy_to_device(std::byte* device, std::span<const std::byte> host) noexcept override {
    std::memcpy(device, host.data(), host.size());
  }
  void copy_to_host(std::span<std::byte> host, const std::byte* device) noexcept override {
    std::memcpy(host.data(), device, host.size());
  }
  void copy_on_device(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept override {
    std::memcpy(to, from, bytes);
  }
  void zero(std::byte* device, std::uint64_t bytes) noexcept override { std::memset(device, 0, bytes); }

  std::unique_ptr<Staging> make_staging(std::uint64_t bytes) override {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    return std::make_unique<EmulatedStaging>(std::span(static_cast<std::byte*>(memory), bytes), staging_);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<EmulatedEvent>(); }
  std::unique_ptr<Event> make_timed_event() override { return make_event(); }
  // A kernel takes a microsecond.
  double seconds_between(Event& from, Event& to) override {
    return 1e-6 * static_cast<double>(static_cast<EmulatedEvent&>(to).kernels_before -
                                      static_cast<EmulatedEvent&>(from).kernels_before);
  }
  void copy_from_staging(std::byte* device, std::span<const std::byte> staged) noexcept override {
    check_staged(staged);
    std::memcpy(device, staged.data(), staged.size());
    sent_copies_.push_back({sent_count_++, staged, {staged.begin(), staged.end()}});
  }
  void copy_to_staging(std::span<std::byte> staged, const std::byte* device) noexcept override {
    check_staged(staged);
    // Behind what was sent from there: the device itself keeps that order.
    std::erase_if(sent_copies_, [&](const SentCopy& sent) {
      return sent.from.data() < staged.data() + staged.size() && staged.data() < sent.from.data() + sent.from.size();
    });
    open_copies_.push_back({staged, {device, device + staged.size()}});
    std::memset(staged.data(), kGarbage, staged.size());
  }
  void record(Event& event) noexcept override {
    static_cast<EmulatedEvent&>(event).copies_before = copies_done_ + open_copies_.size();
    static_cast<EmulatedEvent&>(event).sent_before = sent_count_;
    static_cast<EmulatedEvent&>(event).kernels_before = kernels_count_;
  }
  void wait(Event& event) noexcept override {
    check_sent(static_cast<EmulatedEvent&>(event).sent_before);
    end_copies(static_cast<EmulatedEvent&>(event).copies_before);
  }

  std::uint32_t* arrival_counters() noexcept override { return arrival_counters_.data(); }
  void launch(kernels::KernelId kernel, const Grid& grid, const void* args) noexcept override {
    // What a device would refuse.
    ASSERT(grid.x != 0 && grid.y != 0 && grid.z != 0 && grid.x <= 0x7FFFFFFFu && grid.y <= 0xFFFFu && grid.z <= 0xFFFFu,
           "a grid of {} x {} x {} for kernel {}", grid.x, grid.y, grid.z, static_cast<int>(kernel));
    ++kernels_count_;
    if (options_.overlapping) overlap_.begin_kernel();
    check_args(args, args_bytes_[static_cast<std::size_t>(kernel)]);
    run(kernel, grid, args);
    ASSERT(std::ranges::count(arrival_counters_, 0u) == kernels::kArrivalCounters,
           "kernel {} left an arrival counter above zero", static_cast<int>(kernel));
  }
  std::unique_ptr<Graph> make_graph(std::span<const Launch> launches) noexcept override {
    auto graph = std::make_unique<EmulatedGraph>();
    for (const Launch& launch : launches)
      graph->nodes.push_back({launch.kernel, launch.grid, {launch.args.begin(), launch.args.end()}});
    return graph;
  }
  void launch(Graph& graph) noexcept override {
    for (const EmulatedGraph::Node& node : static_cast<EmulatedGraph&>(graph).nodes)
      launch(node.kernel, node.grid, node.args.data());
  }
  bool is_healthy() const noexcept override { return true; }
  base::Result<> synchronize() override {
    sent_copies_.clear();
    end_copies(copies_done_ + open_copies_.size());
    return {};
  }

 private:
  void run(kernels::KernelId kernel, const Grid& grid, const void* args) {
    using enum kernels::ThreadOrder;
    const auto id = static_cast<std::size_t>(kernel);
    const std::uint32_t seed = options_.seed + static_cast<std::uint32_t>(kernels_count_);  // of this launch
    if (options_.apart) return kernels_apart()[id](grid, args, seed);
    run_[id](grid, args,
             {.order = options_.seed != 0   ? kMixed
                       : options_.backwards ? kBackwards
                                            : kForwards,
              .seed = seed,
              .host_threads = options_.host_threads,
              .overlap = options_.overlapping ? &overlap_ : nullptr});
  }
  void end_copies(std::uint64_t count) {
    for (; copies_done_ < count; ++copies_done_, open_copies_.pop_front())
      std::ranges::copy(open_copies_.front().bytes, open_copies_.front().to.begin());
  }
  void check_sent(std::uint64_t count) {
    for (; !sent_copies_.empty() && sent_copies_.front().number < count; sent_copies_.pop_front())
      ASSERT(std::ranges::equal(sent_copies_.front().from, sent_copies_.front().bytes),
             "staged bytes were changed before their copy was waited for");
  }
  // No test passes with a kernel that was given an address of staging.
  void check_args(const void* args, std::size_t bytes) const {
    for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= bytes; at += sizeof(std::uintptr_t)) {
      const std::byte* address = nullptr;
      std::memcpy(&address, static_cast<const std::byte*>(args) + at, sizeof address);
      for (const EmulatedStaging* staging : staging_)
        ASSERT(!staging->holds({address, 1}), "a kernel was given an address of staging");
    }
  }
  void check_staged(std::span<const std::byte> staged) const {
    ASSERT(std::ranges::any_of(staging_, [&](const EmulatedStaging* one) { return one->holds(staged); }),
           "a staged copy of memory that is not staging");
  }

  EmulationOptions options_;
  DeviceInfo info_;
  std::array<RunFn, AllKernels::kCount> run_;
  std::array<std::size_t, AllKernels::kCount> args_bytes_;
  std::map<std::byte*, std::uint64_t> allocations_;
  std::set<EmulatedStaging*> staging_;
  std::deque<OpenCopy> open_copies_;
  std::uint64_t copies_done_ = 0;
  std::deque<SentCopy> sent_copies_;
  std::uint64_t sent_count_ = 0;
  std::uint64_t kernels_count_ = 0;
  Overlap overlap_{allocations_};
  std::vector<std::uint32_t> arrival_counters_ = std::vector<std::uint32_t>(kernels::kArrivalCounters);
  std::uint64_t used_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Driver> make_driver(const EmulationOptions& options) {
  ASSERT(options.host_threads == 1 || !options.overlapping, "kernels overlap where blocks are run one after the other");
  ASSERT(!options.apart || (options.host_threads == 1 && !options.overlapping),
         "threads apart are run one after the other");
  EmulationOptions taken = options;
  const char* order = std::getenv("LLORCH_EMULATION");
  if (order != nullptr && !options.backwards && !options.overlapping && !options.apart && options.seed == 0)
    ASSERT(std::sscanf(order, "%u:%u", &taken.seed, &taken.host_threads) == 2 && taken.host_threads > 0,
           "LLORCH_EMULATION={}", order);
  return std::make_unique<EmulatedDriver>(taken);
}

std::unique_ptr<CudaBackend> make_backend(const EmulationOptions& options) {
  return std::make_unique<CudaBackend>(make_driver(options), options.memory_bytes);
}

bool is_emulated() {
  const char* const gpu = std::getenv("LLORCH_GPU");
  return gpu != nullptr && std::string_view(gpu) == "emulated";
}

base::Result<std::unique_ptr<plan::Backend>> make_gpu_backend(std::uint64_t memory_budget_bytes) {
  if (is_emulated()) return make_backend({});
  return make_cuda_backend({.device = 0, .memory_budget_bytes = memory_budget_bytes});
}

}  // namespace llorch::engine::compute::cuda::emulation
