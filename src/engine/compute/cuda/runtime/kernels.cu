// The kernels on the device: the bodies of kernels/, each in a __global__ function of its own.
#include "engine/compute/cuda/runtime/kernels.h"

namespace llorch::engine::compute::cuda::runtime {
namespace {

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads) run(const __grid_constant__ typename Kernel::Args args) {
  __shared__ typename Kernel::Shared shared;
  kernels::DeviceBlock<Kernel::kThreads> block;
  Kernel::run(block, shared, args);
}

template <class List>
struct Table;
template <class... Kernels>
struct Table<kernels::KernelList<Kernels...>> {
  static std::array<DeviceKernel, sizeof...(Kernels)> make() {
    return {DeviceKernel{reinterpret_cast<const void*>(&run<Kernels>), Kernels::kThreads}...};
  }
};

}  // namespace

const std::array<DeviceKernel, kernels::AllKernels::kCount>& device_kernels() {
  static const auto table = Table<kernels::AllKernels>::make();
  return table;
}

}  // namespace llorch::engine::compute::cuda::runtime
