#include "pool_managerd/gpu_inventory/inventory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

namespace llorch::pool_managerd::gpu_inventory {
namespace {

using base::ErrorCode;
constexpr std::int64_t kGiB = 1LL << 30;

ReadText files(std::map<std::string, std::string> content) {
  return [content = std::move(content)](const std::string& path) -> std::optional<std::string> {
    const auto it = content.find(path);
    return it == content.end() ? std::nullopt : std::optional(it->second);
  };
}

struct FakeDriver : testing::Test {
  void SetUp() override { unsetenv("FAKE_NVML"); }
  void TearDown() override { unsetenv("FAKE_NVML"); }
  void report(const char* text) { setenv("FAKE_NVML", text, 1); }
  InventoryOptions options() {
    InventoryOptions o;
    o.nvml_library = LLORCH_FAKE_NVML;
    o.vram_headroom_bytes = kGiB;
    return o;
  }
};

// GPUINV-12001, GPUINV-12010, SYS-6.2.2: every GPU is listed with its facts.
TEST_F(FakeDriver, ReadsEveryGpu) {
  const auto inventory = Inventory::open(options(), files({}));
  ASSERT_TRUE(inventory) << inventory.error().message;
  const auto devices = inventory->read();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[1].gpu_id, "1");
  EXPECT_EQ(devices[1].model, "Fake GPU 1");
  EXPECT_EQ(devices[1].device_class, "Fake GPU 1 sm_90");
  EXPECT_EQ(devices[1].compute_capability, "9.0");
  EXPECT_EQ(devices[1].pci_bus_id, "00000000:02:00.0");
  EXPECT_EQ(devices[1].uuid, "GPU-fake-1");
  EXPECT_EQ(devices[1].memory_architecture, "vram-only");
  EXPECT_EQ(devices[1].total_bytes, 24 * kGiB);
  EXPECT_EQ(devices[1].free_bytes, 20 * kGiB);
  EXPECT_EQ(devices[1].headroom_bytes, kGiB);
  EXPECT_EQ(devices[1].temperature_celsius, 41);
  EXPECT_EQ(inventory->driver()->driver_version, "555.42");
  EXPECT_EQ(inventory->driver()->cuda_driver_version, 12040);
}

// POOL-2110, ORCH-1102: no GPU and no --cpu is refused with what to do.
TEST_F(FakeDriver, NoGpuIsRefused) {
  for (const char* broken : {"count=0", "init=9"}) {
    report(broken);
    const auto inventory = Inventory::open(options(), files({}));
    ASSERT_FALSE(inventory) << broken;
    EXPECT_EQ(inventory.error().code, ErrorCode::kNoGpu);
    EXPECT_NE(inventory.error().message.find("--cpu"), std::string::npos);
    EXPECT_NE(inventory.error().message.find("Install the NVIDIA driver"), std::string::npos);
  }
  auto missing = options();
  missing.nvml_library = "/nonexistent/libnvidia-ml.so.1";
  EXPECT_EQ(Inventory::open(missing, files({})).error().code, ErrorCode::kNoGpu);
  // A library that is none of NVIDIA's.
  missing.nvml_library = "libc.so.6";
  EXPECT_EQ(Inventory::open(missing, files({})).error().code, ErrorCode::kNoGpu);
}

// SYS-6.2.3: a GPU for which there is no machine code takes no worker, and says why.
TEST_F(FakeDriver, AGpuWithoutKernelsIsListedWithTheReason) {
  auto o = options();
  std::string asked;
  o.missing_kernels = [&](const std::string& capability) {
    asked = capability;
    return std::string("no kernels for it");
  };
  const auto inventory = Inventory::open(o, files({}));
  ASSERT_TRUE(inventory);
  const auto devices = inventory->read();
  EXPECT_EQ(asked, "9.0");
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_FALSE(devices[0].healthy);
  EXPECT_EQ(devices[0].fault, "no kernels for it");
  EXPECT_EQ(devices[0].total_bytes, 24 * kGiB);
  EXPECT_EQ(available_bytes(devices[0], {}), 0);
}

TEST_F(FakeDriver, LostGpuStaysListedUnhealthy) {
  const auto inventory = Inventory::open(options(), files({}));
  ASSERT_TRUE(inventory);
  report("lost=0");
  auto devices = inventory->read();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_FALSE(devices[0].healthy);
  EXPECT_EQ(devices[0].fault, "GPU is lost");
  EXPECT_EQ(devices[0].total_bytes, 24 * kGiB);
  EXPECT_EQ(available_bytes(devices[0], {}), 0);
  EXPECT_TRUE(devices[1].healthy);
  report("count=1");
  devices = inventory->read();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_FALSE(devices[1].healthy);
}

// POOL-2051: what the driver tells of a device's condition is passed on as it is.
TEST_F(FakeDriver, ReadsTheCondition) {
  report("busy=64;throttle=97;pid=4242;celsius=88;uncorrected=2");
  const auto inventory = Inventory::open(options(), files({}));
  ASSERT_TRUE(inventory);
  const Device device = inventory->read()[0];
  EXPECT_TRUE(device.healthy) << "errors that were there before are no news";
  EXPECT_EQ(device.utilization_percent, 64);
  EXPECT_EQ(device.power_milliwatts, 123'000);
  EXPECT_EQ(device.temperature_celsius, 88);
  EXPECT_EQ(device.ecc_corrected_errors, 3);
  EXPECT_EQ(device.ecc_uncorrected_errors, 2);
  EXPECT_EQ(device.throttle_reasons, (std::vector<std::string>{"software_thermal", "hardware_thermal"}));
  ASSERT_EQ(device.processes.size(), 1u);
  EXPECT_EQ(device.processes[0].pid, 4242);
  EXPECT_EQ(device.processes[0].bytes, 5 * kGiB);
  report("throttle=1");
  EXPECT_TRUE(inventory->read()[0].throttle_reasons.empty()) << "an idle GPU is not held down";
}

// ORCH-3053#visible: a device that needs a reset, one with memory errors and one that is lost are told apart.
TEST_F(FakeDriver, FaultsAreToldApart) {
  const auto inventory = Inventory::open(options(), files({}));
  ASSERT_TRUE(inventory);
  report("lost=0");
  EXPECT_EQ(inventory->read()[0].fault_kind, FaultKind::kLost);
  report("reset=0");
  Device device = inventory->read()[0];
  EXPECT_EQ(device.fault_kind, FaultKind::kReset);
  EXPECT_EQ(device.fault, "GPU requires restart");
  report("");
  EXPECT_TRUE(inventory->read()[0].healthy);
  report("uncorrected=1");
  device = inventory->read()[0];
  EXPECT_FALSE(device.healthy);
  EXPECT_EQ(device.fault_kind, FaultKind::kEcc);
  EXPECT_NE(device.fault.find("1 errors"), std::string::npos) << device.fault;
  EXPECT_EQ(inventory->read()[0].fault_kind, FaultKind::kEcc) << "it stays so until it is reset";
  report("uncorrected=0");
  EXPECT_TRUE(inventory->read()[0].healthy) << "the count began anew: it was reset";
}

// ORCH-3053#visible: errors that the driver tells once, by number, count until the device has been away.
TEST_F(FakeDriver, ErrorsThatTheDriverTells) {
  const auto inventory = Inventory::open(options(), files({}));
  ASSERT_TRUE(inventory);
  report("xid=31");  // a program's page fault
  auto devices = inventory->read();
  EXPECT_EQ(devices[0].xids, std::vector<unsigned>{31});
  EXPECT_TRUE(devices[0].healthy);
  EXPECT_TRUE(devices[1].xids.empty());
  EXPECT_TRUE(inventory->read()[0].xids.empty()) << "once";
  report("xid=79");
  devices = inventory->read();
  EXPECT_EQ(devices[0].fault_kind, FaultKind::kReset);
  EXPECT_NE(devices[0].fault.find("79"), std::string::npos);
  EXPECT_TRUE(devices[1].healthy);
  EXPECT_FALSE(inventory->read()[0].healthy);
  report("xid=79;lost=0");
  EXPECT_EQ(inventory->read()[0].fault_kind, FaultKind::kLost);
  report("xid=79");
  EXPECT_TRUE(inventory->read()[0].healthy);
  EXPECT_EQ(fault_of_xid(48), FaultKind::kEcc);
  EXPECT_EQ(fault_of_xid(43), FaultKind::kNone);
}

// A driver that was replaced under the pool is opened anew, and its devices come back.
TEST_F(FakeDriver, ADriverThatWasReloaded) {
  const auto inventory = Inventory::open(options(), files({}));
  ASSERT_TRUE(inventory);
  report("unloaded=1");
  for (int i = 0; i < 2; ++i) {
    const auto devices = inventory->read();
    ASSERT_EQ(devices.size(), 2u);
    EXPECT_EQ(devices[1].fault_kind, FaultKind::kLost);
    EXPECT_EQ(devices[1].total_bytes, 24 * kGiB);
  }
  for (const char* still_gone : {"unloaded=1;init=9", "init=9"}) {
    report(still_gone);
    EXPECT_FALSE(inventory->read()[0].healthy);
    EXPECT_FALSE(inventory->driver().has_value());
  }
  report("");
  EXPECT_TRUE(inventory->read()[0].healthy);
  EXPECT_EQ(inventory->driver()->driver_version, "555.42");
}

// The CPU device is there only if it is asked for by name, labelled as what it is, with the budget given.
TEST_F(FakeDriver, CpuDeviceOnlyWhenAsked) {
  auto o = options();
  o.allow_cpu = true;
  o.cpu_memory_bytes = 3 * kGiB;
  auto inventory = Inventory::open(o, files({}));
  ASSERT_TRUE(inventory);
  ASSERT_EQ(inventory->read().size(), 3u);
  o.nvml_library = "/nonexistent.so";
  inventory = Inventory::open(o, files({}));
  ASSERT_TRUE(inventory);
  const auto devices = inventory->read();
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].gpu_id, "cpu");
  EXPECT_EQ(devices[0].device_class, "cpu-x86");
  EXPECT_EQ(devices[0].memory_architecture, "host");
  EXPECT_EQ(available_bytes(devices[0], {}), 3 * kGiB);
  o.cpu_memory_bytes = 4096;
  EXPECT_EQ(Inventory::open(o, files({})).error().code, ErrorCode::kConfigInvalid);
}

TEST(HostMemory, HalfOfWhatIsLeft) {
  InventoryOptions o;
  o.allow_cpu = true;
  o.nvml_library = "/nonexistent.so";
  const auto inventory =
      Inventory::open(o, files({{"/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    8388608 kB\n"}}));
  ASSERT_TRUE(inventory);
  EXPECT_EQ(inventory->read()[0].total_bytes, 4 * kGiB);
}

TEST(HostMemory, SmallestCgroupOnTheWayUpWins) {
  std::map<std::string, std::string> fs{
      {"/proc/meminfo", "MemAvailable: 8388608 kB\n"}, {"/proc/self/cgroup", "4:memory:/x\n0::/a/b\n"},
      {"/sys/fs/cgroup/a/b/memory.max", "max\n"},      {"/sys/fs/cgroup/a/b/memory.current", "5\n"},
      {"/sys/fs/cgroup/a/memory.max", "3000\n"},       {"/sys/fs/cgroup/a/memory.current", "1000\n"}};
  EXPECT_EQ(*host_memory_left(files(fs)), 2000);
  fs["/sys/fs/cgroup/a/memory.current"] = "4000\n";  // over its limit for a moment
  EXPECT_EQ(*host_memory_left(files(fs)), 0);
  EXPECT_EQ(host_memory_left(files({})).error().code, ErrorCode::kIoError);
}

TEST(HostMemory, HostileTextIsNoNumber) {
  for (const char* text : {"", "MemAvailable:", "MemAvailable: -1 kB", "MemAvailable: x kB", "MemAvailable: 12",
                           "MemAvailable: 99999999999999999999 kB", "MemAvailable: 9999999999999999 kB"}) {
    EXPECT_FALSE(parse_mem_available(text)) << text;
  }
  EXPECT_EQ(parse_cgroup_path("0::/\n"), "");
  EXPECT_FALSE(parse_cgroup_path("1:cpu:/x\n"));
  EXPECT_FALSE(parse_cgroup_path("0::relative\n"));
}

// ORCH-3039#told-apart: how a kill by the kernel for lack of host memory is told.
TEST(HostMemory, OomKills) {
  EXPECT_EQ(parse_oom_kills("low 0\noom 3\noom_kill 2\noom_group_kill 1\n"), 2);
  EXPECT_EQ(parse_oom_kills("oom 3\n"), 0);
  EXPECT_EQ(parse_oom_kills(""), 0);
}

// GPUINV-12030: available = min(total - allocated - headroom, free), never negative.
TEST(Accounting, Available) {
  Device gpu;
  gpu.total_bytes = 100;
  gpu.headroom_bytes = 10;
  gpu.free_bytes = 80;
  EXPECT_EQ(available_bytes(gpu, {}), 80);  // another process holds 20
  EXPECT_EQ(available_bytes(gpu, {.allocated_bytes = 30, .starting_bytes = 0}), 60);
  EXPECT_EQ(available_bytes(gpu, {.allocated_bytes = 30, .starting_bytes = 30}), 50);
  EXPECT_EQ(available_bytes(gpu, {.allocated_bytes = 95, .starting_bytes = 0}), 0);
  gpu.free_bytes.reset();
  EXPECT_EQ(available_bytes(gpu, {.allocated_bytes = 30, .starting_bytes = 30}), 60);
}

}  // namespace
}  // namespace llorch::pool_managerd::gpu_inventory
