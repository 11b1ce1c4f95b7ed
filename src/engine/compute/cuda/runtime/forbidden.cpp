// What symbols_test.sh must find: linked to nothing.
extern "C" int cudaMallocManaged(void** pointer, unsigned long bytes, unsigned flags);

namespace llorch::engine::compute::cuda::runtime {

extern const char* const kOpenedAtRunTime[];
const char* const kOpenedAtRunTime[] = {"cuMemAllocManaged", "ncclMemAlloc", "nvmlDeviceSetMemoryLockedClocks"};

int take_managed_memory(void** pointer);
int take_managed_memory(void** pointer) { return cudaMallocManaged(pointer, 1, 1); }

}  // namespace llorch::engine::compute::cuda::runtime
