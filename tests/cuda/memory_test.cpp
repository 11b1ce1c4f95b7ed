// Where everything lies that a device computes with, seen from the driver: whole models on the emulated device.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstring>

#include "cuda_support.h"
#include "engine/compute/cuda/emulation/forwarding_driver.h"

namespace llorch::cuda_test {
namespace {

using engine::compute::cuda::Graph;
using engine::compute::cuda::Grid;
using engine::compute::cuda::Launch;
using engine::compute::cuda::Residency;
using engine::plan::MemoryPurpose;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

bool is_mapped(std::uintptr_t address) {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  unsigned char resident = 0;
  return ::mincore(reinterpret_cast<void*>(address / page * page), 1, &resident) == 0;
}

// The members of a kernel's arguments: 0xff, and 0 for the bytes between them, in which there may be anything.
template <class Args>
std::vector<std::byte> member_bytes() {
  std::vector<std::byte> bytes(sizeof(Args), std::byte{0xff});
  __builtin_clear_padding(reinterpret_cast<Args*>(bytes.data()));
  return bytes;
}
const std::vector<std::byte>& members_of(engine::compute::cuda::kernels::KernelId kernel) {
  static const auto members = engine::compute::cuda::kernels::AllKernels::table<std::vector<std::byte>>(
      []<class Kernel>() { return member_bytes<typename Kernel::Args>(); });
  return members[static_cast<std::size_t>(kernel)];
}

// Looks through the arguments of every kernel for addresses of memory that is the host's, and notes what is allocated and copied.
class WatchingDriver final : public engine::compute::cuda::emulation::ForwardingDriver {
 public:
  WatchingDriver() : ForwardingDriver(engine::compute::cuda::emulation::make_driver({})) {}
  std::byte* malloc(std::uint64_t bytes) override {
    ++mallocs;
    return ForwardingDriver::malloc(bytes);
  }
  void copy_to_device(std::byte* device, std::span<const std::byte> host) noexcept override {
    bytes_to_device += host.size();
    ForwardingDriver::copy_to_device(device, host);
  }
  void copy_from_staging(std::byte* device, std::span<const std::byte> staged) noexcept override {
    bytes_to_device += staged.size();
    ForwardingDriver::copy_from_staging(device, staged);
  }
  void launch(engine::compute::cuda::kernels::KernelId kernel, const Grid& grid, const void* args) noexcept override {
    look(kernel, static_cast<const std::byte*>(args));
    ForwardingDriver::launch(kernel, grid, args);
  }
  std::unique_ptr<Graph> make_graph(std::span<const Launch> launches) noexcept override {
    ++graphs;
    for (const Launch& launch : launches) look(launch.kernel, launch.args.data());
    return ForwardingDriver::make_graph(launches);
  }
  void launch(Graph& graph) noexcept override { ForwardingDriver::launch(graph); }

  std::uint64_t mallocs = 0, bytes_to_device = 0, graphs = 0;
  std::uint64_t device_addresses = 0, host_addresses = 0;

 private:
  void look(engine::compute::cuda::kernels::KernelId kernel, const std::byte* args) {
    std::vector<std::byte> told = members_of(kernel);
    for (std::size_t i = 0; i < told.size(); ++i) told[i] &= args[i];
    for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= told.size(); at += sizeof(std::uintptr_t)) {
      std::uintptr_t word = 0;
      std::memcpy(&word, told.data() + at, sizeof word);
      const auto* address = std::bit_cast<const std::byte*>(word);
      if (residency(address) == Residency::kThisDevice) {
        ++device_addresses;
      } else if (address != reinterpret_cast<const std::byte*>(arrival_counters()) && is_mapped(word)) {
        ++host_addresses;
      }
    }
  }
};

struct Watched {
  Watched() {
    auto owned = std::make_unique<WatchingDriver>();
    driver = owned.get();
    backend = std::make_unique<engine::compute::cuda::CudaBackend>(std::move(owned), 1u << 30);
  }
  WatchingDriver* driver = nullptr;
  std::unique_ptr<engine::compute::cuda::CudaBackend> backend;
};

// ORCH-3800, ORCH-3801, ORCH-3802, ORCH-3803, ORCH-3804, WORKER-4100, WORKER-4101, WORKER-4102, WORKER-4103, M0-W-1010:
// weights, caches, activations and workspace are the device's own memory while a model computes: no kernel is given an address
// of the host's, nothing is allocated, and what a step sends to the device is what it says of its rows. M0-W-1011: the
// bytes of each are counted, and are those of the plan.
TEST(DeviceMemory, HoldsAllThatIsComputedWith) {
  if (kSanitized) GTEST_SKIP() << "shadow memory makes most numbers addresses of something";
  const Watched watched;
  const auto& [driver, backend] = watched;
  constexpr std::uint32_t kSlots = 2, kSteps = 10;
  const Model model{.name = "demo", .path = golden::demo_model("q8_0")};
  const auto engine = load(model, {.context_tokens = 256, .slots = kSlots, .draws = true}, *backend);
  const auto& plan = engine->memory_plan();
  EXPECT_EQ(backend->used_bytes(MemoryPurpose::kWeights), plan.weights_bytes);
  EXPECT_EQ(backend->used_bytes(MemoryPurpose::kState), plan.state_bytes);
  EXPECT_EQ(backend->used_bytes(MemoryPurpose::kActivations), plan.activations_bytes);
  EXPECT_EQ(backend->used_bytes(MemoryPurpose::kWorkspace), plan.workspace_bytes);
  EXPECT_EQ(backend->used_bytes(MemoryPurpose::kStaging), 0U);
  EXPECT_EQ(backend->memory_used_bytes(), plan.total_bytes());
  EXPECT_GT(std::min({plan.weights_bytes, plan.state_bytes, plan.activations_bytes, plan.workspace_bytes}), 0U);
  EXPECT_TRUE(backend->check_residency());

  const std::uint64_t mallocs = driver->mallocs, sent = driver->bytes_to_device;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot)
    ASSERT_TRUE(engine->prefill(slot, std::vector<base::TokenId>(5, base::TokenId{7})));
  const base::TokenId token{11};
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    const std::array rows{engine::inference::SlotRows{0, std::span(&token, 1), engine::inference::RowsWanted::kLast},
                          engine::inference::SlotRows{1, std::span(&token, 1), engine::inference::RowsWanted::kLast}};
    ASSERT_TRUE(engine->step(rows));
  }
  EXPECT_EQ(driver->host_addresses, 0U);
  EXPECT_GT(driver->device_addresses, 1000U);
  EXPECT_GT(driver->graphs, 0U);
  EXPECT_EQ(driver->mallocs, mallocs);
  EXPECT_LT(driver->bytes_to_device - sent, plan.weights_bytes / 20) << "the weights were not sent again";
  EXPECT_EQ(backend->memory_used_bytes(), plan.total_bytes());
}

// Control of ORCH-3800, ORCH-3801, ORCH-3802, ORCH-3803, ORCH-3804 and M0-W-1010,
// Control of WORKER-4100, WORKER-4101, WORKER-4102, WORKER-4103: a kernel that reads and writes memory of the host is found.
TEST(DeviceMemory, AHostAddressIsNoticed) {
  if (kSanitized) GTEST_SKIP() << "shadow memory makes most numbers addresses of something";
  const Watched watched;
  std::vector<float> values(64);
  engine::compute::cuda::CudaStream(*watched.driver)
      .launch<engine::compute::cuda::kernels::ScaleSoftcap>({1}, {.y = values.data(), .count = 64, .scale = 2.0f});
  EXPECT_EQ(watched.driver->host_addresses, 1U);
}

}  // namespace
}  // namespace llorch::cuda_test
