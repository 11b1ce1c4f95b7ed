// The CUDA runtime as a Driver, and the door of a build that has it. The runtime is linked in and opens the driver itself;
// what of it we call is listed in symbols.txt, and a test compares.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <cstdlib>
#include <string_view>

#include "base/assert.h"
#include "engine/compute/cuda/backend.h"
#include "engine/compute/cuda/collective/collective.h"
#include "engine/compute/cuda/device.h"
#include "engine/compute/cuda/runtime/kernels.h"
#include "engine/compute/cuda/step_watch.h"

namespace llorch::engine::compute::cuda {
namespace {

using base::ErrorCode;
using base::fail;
using base::Result;

// The driver keeps some memory of its own: kernel code, stacks, launch queues, and graphs, which may have half of it.
constexpr std::uint64_t kReserveBytes = 512u << 20;
static_assert(GraphLimits{}.bytes_max <= kReserveBytes / 2);

// The compute capability from which on kernels overlap.
constexpr std::uint32_t kOverlapMajor = 9;
// LLORCH_CUDA_OVERLAP=0 runs kernels one after the other, LLORCH_CUDA_GRAPHS=0 launches each by itself, for whoever looks for a wait
// that is missing or for a graph that is stale: no bit may depend on either.
bool wanted(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr || std::string_view(value) != "0";
}

base::Error unavailable(std::uint32_t device, const std::string& message) {
  return base::Error{ErrorCode::kGpuUnavailable, message, {}}.with("gpu_id", static_cast<std::int64_t>(device));
}

// Page-locked. With unified addressing any locked memory has an address that kernels could follow: that none is given one is
// this backend's doing (Staging), not the runtime's.
class LockedStaging final : public Staging {
 public:
  explicit LockedStaging(std::span<std::byte> bytes) : bytes_(bytes) {}
  ~LockedStaging() override { cudaFreeHost(bytes_.data()); }
  std::span<std::byte> bytes() override { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(cudaEvent_t event) : handle(event) {}
  ~CudaEvent() override { cudaEventDestroy(handle); }
  const cudaEvent_t handle;
};

class CapturedGraph final : public Graph {
 public:
  explicit CapturedGraph(cudaGraphExec_t exec) : exec_(exec) {}
  ~CapturedGraph() override { cudaGraphExecDestroy(exec_); }  // what still runs is let finish
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  cudaGraphExec_t exec() const { return exec_; }

 private:
  cudaGraphExec_t exec_;
};

class CudaDriver final : public Driver {
 public:
  using Driver::launch;

  // Errors: GPU_UNAVAILABLE, CUDA_ERROR.
  static Result<std::unique_ptr<CudaDriver>> open(std::uint32_t device);
  void* native_stream() const { return stream_; }

  ~CudaDriver() override {
    make_current();
    cudaFree(arrival_counters_);
    for (cudaStream_t stream : {stream_, capturing_})
      if (stream != nullptr) cudaStreamDestroy(stream);
  }
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  const DeviceInfo& info() const override { return info_; }
  std::uint64_t free_memory_bytes() override {
    make_current();
    std::size_t free = 0, total = 0;
    note(cudaMemGetInfo(&free, &total), "reading the free memory");
    return free;
  }
  Residency residency(const std::byte* ptr) override {
    make_current();
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, ptr) != cudaSuccess) {
      cudaGetLastError();  // an address it does not know is an answer
      return Residency::kUnknown;
    }
    switch (attributes.type) {
      case cudaMemoryTypeDevice:
        if (attributes.hostPointer != nullptr) return Residency::kHost;
        return attributes.device == static_cast<int>(device_) ? Residency::kThisDevice : Residency::kOtherDevice;
      case cudaMemoryTypeManaged: return Residency::kManaged;
      case cudaMemoryTypeHost:
      case cudaMemoryTypeUnregistered: return Residency::kHost;
    }
    return Residency::kUnknown;
  }

  std::byte* malloc(std::uint64_t bytes) override {
    make_current();
    void* ptr = nullptr;
    const cudaError_t error = cudaMalloc(&ptr, bytes);
    if (error == cudaSuccess) return static_cast<std::byte*>(ptr);
    cudaGetLastError();  // not having room is no fault of the device
    if (error != cudaErrorMemoryAllocation) note(error, "allocating");
    return nullptr;
  }
  void free(std::byte* ptr) noexcept override {
    make_current();
    note(cudaFree(ptr), "releasing memory");
  }

  // The source is pageable, so the runtime has taken a copy of it when the call returns.
  void copy_to_device(std::byte* device, std::span<const std::byte> host) noexcept override {
    make_current();
    note(cudaMemcpyAsync(device, host.data(), host.size(), cudaMemcpyHostToDevice, stream_), "copying to the device");
  }
  void copy_to_host(std::span<std::byte> host, const std::byte* device) noexcept override {
    make_current();
    note(cudaMemcpyAsync(host.data(), device, host.size(), cudaMemcpyDeviceToHost, stream_), "copying to the host");
    note(cudaStreamSynchronize(stream_), "waiting for a copy");
  }
  void copy_on_device(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept override {
    make_current();
    note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "copying on the device");
  }
  void zero(std::byte* device, std::uint64_t bytes) noexcept override {
    make_current();
    note(cudaMemsetAsync(device, 0, bytes, stream_), "clearing memory");
  }

  std::unique_ptr<Staging> make_staging(std::uint64_t bytes) override {
    make_current();
    void* ptr = nullptr;
    if (const cudaError_t error = cudaMallocHost(&ptr, bytes); error != cudaSuccess) {
      cudaGetLastError();  // not having room is no fault of the device
      if (error != cudaErrorMemoryAllocation) note(error, "locking host memory");
      return nullptr;
    }
    return std::make_unique<LockedStaging>(std::span(static_cast<std::byte*>(ptr), bytes));
  }
  std::unique_ptr<Event> make_event() override { return make_event(cudaEventDisableTiming); }
  std::unique_ptr<Event> make_timed_event() override { return make_event(cudaEventDefault); }
  double seconds_between(Event& from, Event& to) override {
    make_current();
    float milliseconds = 0;
    note(cudaEventElapsedTime(&milliseconds, static_cast<CudaEvent&>(from).handle, static_cast<CudaEvent&>(to).handle),
         "reading a time");
    return milliseconds / 1e3;
  }
  void copy_from_staging(std::byte* device, std::span<const std::byte> staged) noexcept override {
    make_current();
    note(cudaMemcpyAsync(device, staged.data(), staged.size(), cudaMemcpyHostToDevice, stream_),
         "copying to the device");
  }
  void copy_to_staging(std::span<std::byte> staged, const std::byte* device) noexcept override {
    make_current();
    note(cudaMemcpyAsync(staged.data(), device, staged.size(), cudaMemcpyDeviceToHost, stream_), "copying to the host");
  }
  void record(Event& event) noexcept override {
    make_current();
    note(cudaEventRecord(static_cast<CudaEvent&>(event).handle, stream_), "recording an event");
  }
  void wait(Event& event) noexcept override {
    make_current();
    note(cudaEventSynchronize(static_cast<CudaEvent&>(event).handle), "waiting for an event");
  }

  std::uint32_t* arrival_counters() noexcept override { return arrival_counters_; }
  void launch(kernels::KernelId kernel, const Grid& grid, const void* args) noexcept override {
    make_current();
    note(enqueue({.kernel = kernel, .grid = grid}, args, stream_), "launching a kernel");
  }
  // Captured on a stream of its own, so that a failure leaves the one that computes as it was.
  std::unique_ptr<Graph> make_graph(std::span<const Launch> launches) noexcept override {
    if (!wanted("LLORCH_CUDA_GRAPHS")) return nullptr;
    make_current();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    cudaError_t error = cudaStreamBeginCapture(capturing_, cudaStreamCaptureModeThreadLocal);
    if (error == cudaSuccess) {
      for (const Launch& launch : launches)
        if (error == cudaSuccess) error = enqueue(launch, launch.args.data(), capturing_);
      const cudaError_t ended = cudaStreamEndCapture(capturing_, &graph);
      if (error == cudaSuccess) error = ended;
    }
    if (error == cudaSuccess) error = cudaGraphInstantiate(&exec, graph, 0);
    if (graph != nullptr) cudaGraphDestroy(graph);
    if (error == cudaSuccess) return std::make_unique<CapturedGraph>(exec);
    cudaGetLastError();  // the kernels can still be launched
    return nullptr;
  }
  void launch(Graph& graph) noexcept override {
    make_current();
    note(cudaGraphLaunch(static_cast<CapturedGraph&>(graph).exec(), stream_), "launching a graph");
  }
  bool is_healthy() const noexcept override { return error_ == cudaSuccess; }
  Result<> synchronize() override {
    make_current();
    note(cudaStreamSynchronize(stream_), "waiting for the device");
    if (is_healthy()) return {};
    return fail(base::Error{
        ErrorCode::kCudaError,
        fmt::format("{} reported while {}: {} ({}). The device's state is lost; start the process again.", info_.name,
                    doing_, cudaGetErrorString(error_), cudaGetErrorName(error_)),
        {}}.with("gpu_id", static_cast<std::int64_t>(device_)));
  }

 private:
  explicit CudaDriver(std::uint32_t device) : device_(device), kernels_(runtime::device_kernels()) {}

  // The runtime's current device is the calling thread's.
  void make_current() noexcept {
    static thread_local std::int64_t current = -1;
    if (current == device_) return;
    const cudaError_t error = cudaSetDevice(static_cast<int>(device_));
    note(error, "choosing the device");
    current = error == cudaSuccess ? std::int64_t{device_} : -1;
  }
  cudaError_t enqueue(const Launch& launch, const void* args, cudaStream_t stream) const noexcept {
    const runtime::DeviceKernel& entry = kernels_[static_cast<std::size_t>(launch.kernel)];
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(launch.grid.x, launch.grid.y, launch.grid.z);
    config.blockDim = dim3(entry.threads);
    config.dynamicSmemBytes = entry.shared_bytes;
    config.stream = stream;
    // The next kernel comes up while this one ends; every kernel waits by itself (kernels/block.h).
    cudaLaunchAttribute overlap{};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &overlap;
    config.numAttrs = overlaps_ ? 1 : 0;
    void* parameters[] = {const_cast<void*>(args)};
    return cudaLaunchKernelExC(&config, entry.function, parameters);
  }
  std::unique_ptr<Event> make_event(unsigned flags) {
    make_current();
    cudaEvent_t event = nullptr;
    note(cudaEventCreateWithFlags(&event, flags), "making an event");
    return std::make_unique<CudaEvent>(event);
  }
  void note(cudaError_t error, const char* doing) noexcept {
    if (error == cudaSuccess || error_ != cudaSuccess) return;
    error_ = error;
    doing_ = doing;
  }

  std::uint32_t device_;
  const std::array<runtime::DeviceKernel, kernels::AllKernels::kCount>& kernels_;
  DeviceInfo info_;
  bool overlaps_ = false;
  cudaStream_t stream_ = nullptr;
  cudaStream_t capturing_ = nullptr;
  std::uint32_t* arrival_counters_ = nullptr;
  cudaError_t error_ = cudaSuccess;  // the first, and what was being done
  const char* doing_ = "";
};

Result<std::unique_ptr<CudaDriver>> CudaDriver::open(std::uint32_t device) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess)
    return fail(unavailable(
        device, fmt::format("no NVIDIA GPU can be used: {} ({}). Check that the driver is installed and new "
                            "enough (nvidia-smi), or name the CPU reference device, cpu.",
                            cudaGetErrorString(error), cudaGetErrorName(error))));
  if (device >= static_cast<std::uint32_t>(count))
    return fail(
        unavailable(device, fmt::format("GPU {} does not exist: {} visible, numbered from 0. CUDA_VISIBLE_DEVICES "
                                        "decides which are.",
                                        device, count)));
  std::unique_ptr<CudaDriver> driver(new CudaDriver(device));
  driver->make_current();
  cudaDeviceProp properties{};
  driver->note(cudaGetDeviceProperties(&properties, static_cast<int>(device)), "reading its properties");
  driver->info_ = {.name = properties.name,
                   .compute_major = static_cast<std::uint32_t>(properties.major),
                   .compute_minor = static_cast<std::uint32_t>(properties.minor),
                   .memory_bytes = properties.totalGlobalMem};
  driver->overlaps_ = driver->info_.compute_major >= kOverlapMajor && wanted("LLORCH_CUDA_OVERLAP");
  cudaFuncAttributes attributes{};
  if (const cudaError_t error = cudaFuncGetAttributes(&attributes, driver->kernels_[0].function); error != cudaSuccess)
    return fail(unavailable(
        device,
        fmt::format("{} has compute capability {}.{}, for which this build has no kernels ({}); it was built for {}.",
                    properties.name, properties.major, properties.minor, cudaGetErrorName(error),
                    built_architectures())));
  // All code comes to the device here. Where the first launch brought it, it would take memory that was promised to models, and
  // that launch may have to wait for the device, which may be waiting for the other GPUs of a sum.
  for (const runtime::DeviceKernel& kernel : driver->kernels_) {
    driver->note(cudaFuncGetAttributes(&attributes, kernel.function), "loading a kernel");
    if (kernel.shared_bytes != 0)
      driver->note(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(kernel.shared_bytes)),
                   "asking for shared memory");
  }
  for (cudaStream_t* stream : {&driver->stream_, &driver->capturing_})
    driver->note(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "making a stream");
  constexpr std::size_t kArrivalCounterBytes = kernels::kArrivalCounters * sizeof(std::uint32_t);
  void* arrival_counters = nullptr;
  driver->note(cudaMalloc(&arrival_counters, kArrivalCounterBytes), "making room for arrival counters");
  driver->note(cudaMemsetAsync(arrival_counters, 0, kArrivalCounterBytes, driver->stream_),
               "clearing arrival counters");
  driver->arrival_counters_ = static_cast<std::uint32_t*>(arrival_counters);
  TRY(driver->synchronize());
  return driver;
}

}  // namespace

namespace {

std::unique_ptr<CudaBackend> make_backend(std::unique_ptr<CudaDriver> driver, std::uint64_t memory_budget_bytes) {
  const std::uint64_t free = driver->free_memory_bytes();
  const std::uint64_t usable = free > kReserveBytes ? free - kReserveBytes : 0;
  return std::make_unique<CudaBackend>(std::move(driver), memory_budget_bytes != 0 ? memory_budget_bytes : usable);
}

}  // namespace

Result<std::unique_ptr<plan::Backend>> make_cuda_backend(const CudaBackendOptions& options) {
  return make_backend(TRY(CudaDriver::open(options.device)), options.memory_budget_bytes);
}

Result<CudaGroup> make_cuda_group(const CudaGroupOptions& options) {
  std::vector<std::unique_ptr<CudaDriver>> drivers;
  std::vector<std::uint32_t> devices;
  for (const CudaBackendOptions& gpu : options.gpus) {
    drivers.push_back(TRY(CudaDriver::open(gpu.device)));
    devices.push_back(gpu.device);
  }
  // Connected before budgets are read off what is free: connections take memory of every GPU.
  std::unique_ptr<Nccl> nccl;
  if (drivers.size() > 1) nccl = TRY(Nccl::open(kNcclLibrary, devices));
  CudaGroup group;
  std::vector<CudaCollective::Gpu> gpus;
  for (std::unique_ptr<CudaDriver>& driver : drivers) {
    void* const native_stream = driver->native_stream();
    std::unique_ptr<CudaBackend> backend =
        make_backend(std::move(driver), options.gpus[group.backends.size()].memory_budget_bytes);
    gpus.push_back({.backend = backend.get(), .native_stream = native_stream});
    if (options.count_steps) group.meters.push_back(std::make_unique<StepWatch>(*backend));
    group.backends.push_back(std::move(backend));
  }
  if (nccl != nullptr) group.collective = std::make_unique<CudaCollective>(std::move(gpus), std::move(nccl));
  return group;
}

}  // namespace llorch::engine::compute::cuda
