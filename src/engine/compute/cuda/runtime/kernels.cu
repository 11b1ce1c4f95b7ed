// The kernels on the device: the bodies of kernels/, each in a __global__ function of its own.
#include "engine/compute/cuda/runtime/kernels.h"

namespace llorch::engine::compute::cuda::runtime {
namespace {

// Shared memory past what a block may declare is asked for at launch.
constexpr std::size_t kDeclaredBytesMax = 48 * 1024;
template <class Kernel>
constexpr std::uint32_t kExtraShared =
    sizeof(typename Kernel::Shared) > kDeclaredBytesMax ? sizeof(typename Kernel::Shared) : 0;

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads) run(const __grid_constant__ typename Kernel::Args args) {
  kernels::DeviceBlock<Kernel::kThreads> block;
  if constexpr (kExtraShared<Kernel> != 0) {
    extern __shared__ kernels::Words4 memory[];
    kernels::run_block<Kernel>(block, *reinterpret_cast<typename Kernel::Shared*>(memory), args);
  } else {
    __shared__ typename Kernel::Shared shared;
    kernels::run_block<Kernel>(block, shared, args);
  }
}

template <class List>
struct Table;
template <class... Kernels>
struct Table<kernels::KernelList<Kernels...>> {
  static std::array<DeviceKernel, sizeof...(Kernels)> make() {
    return {DeviceKernel{reinterpret_cast<const void*>(&run<Kernels>), Kernels::kThreads, kExtraShared<Kernels>}...};
  }
};

}  // namespace

const std::array<DeviceKernel, kernels::AllKernels::kCount>& device_kernels() {
  static const auto table = Table<kernels::AllKernels>::make();
  return table;
}

}  // namespace llorch::engine::compute::cuda::runtime
