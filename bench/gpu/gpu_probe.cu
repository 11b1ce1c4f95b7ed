// Facts of a GPU that decide what the kernels should be: what it reads at most, whether a wgmma adds in the order of mma.sync, and
// what launches cost. One JSON line per fact; a fact that could not be had says why, and the others go on.
// Usage: gpu_probe [--device-only | --read-only]. Exit status: 0; 1 after an error of the device; 4 without a GPU.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

namespace {

bool failed = false;

bool ok(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return true;
  std::printf("{\"stage\":\"probe\",\"name\":\"%s\",\"error\":\"%s\"}\n", doing, cudaGetErrorName(error));
  failed = true;
  return false;
}
void tell(const char* name, double value, const char* unit) {
  std::printf("{\"stage\":\"probe\",\"name\":\"%s\",\"value\":%.6g,\"unit\":\"%s\"}\n", name, value, unit);
  std::fflush(stdout);
}

// The shortest of `rounds` runs of `work`, in seconds, by the device's clock.
template <class Work>
double fastest(int rounds, const Work& work) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  double best = 1e30;
  for (int i = 0; i < rounds + 1; ++i) {
    cudaEventRecord(begin);
    work();
    cudaEventRecord(end);
    if (!ok(cudaEventSynchronize(end), "timing")) break;
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (i > 0) best = std::min(best, ms * 1e-3);  // the first one warms up
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return best;
}

// ---- reading --------------------------------------------------------------------------------------------------------

__global__ void read_all(const uint4* data, std::size_t count, unsigned* sink) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  uint4 a{}, b{}, c{}, d{};
  for (; i + 3 * stride < count; i += 4 * stride) {
    const uint4 w = __ldcs(data + i), x = __ldcs(data + i + stride), y = __ldcs(data + i + 2 * stride),
                z = __ldcs(data + i + 3 * stride);
    a.x ^= w.x ^ w.y ^ w.z ^ w.w;
    b.x ^= x.x ^ x.y ^ x.z ^ x.w;
    c.x ^= y.x ^ y.y ^ y.z ^ y.w;
    d.x ^= z.x ^ z.y ^ z.z ^ z.w;
  }
  for (; i < count; i += stride) a.x ^= data[i].x;
  const unsigned all = a.x ^ b.x ^ c.x ^ d.x;
  if (all == 0x9e3779b9u) *sink = all;  // keeps the loads
}

void probe_reading(const cudaDeviceProp& properties) {
  std::size_t free = 0, total = 0;
  if (!ok(cudaMemGetInfo(&free, &total), "read_bandwidth")) return;
  const std::size_t bytes = std::min<std::size_t>(free / 4, std::size_t{8} << 30) / 256 * 256;
  uint4* data = nullptr;
  unsigned* sink = nullptr;
  if (!ok(cudaMalloc(&data, bytes), "read_bandwidth") || !ok(cudaMalloc(&sink, 4), "read_bandwidth")) return;
  cudaMemset(data, 0x5a, bytes);
  double best = 0;
  for (const int blocks : {2, 4, 8, 16}) {
    const double seconds = fastest(10, [&] {
      read_all<<<static_cast<unsigned>(properties.multiProcessorCount * blocks), 512>>>(data, bytes / 16, sink);
    });
    best = std::max(best, static_cast<double>(bytes) / seconds);
  }
  tell("read_bandwidth", best / 1e9, "GB/s");
  // With all of the shared memory taken from the cache, and with what the driver gives by itself.
  for (const int carveout : {-1, 100}) {
    cudaFuncSetAttribute(read_all, cudaFuncAttributePreferredSharedMemoryCarveout, carveout);
    const double seconds = fastest(10, [&] {
      read_all<<<static_cast<unsigned>(properties.multiProcessorCount * 4), 512>>>(data, bytes / 16, sink);
    });
    tell(carveout < 0 ? "read_bandwidth_carveout_default" : "read_bandwidth_carveout_100",
         static_cast<double>(bytes) / seconds / 1e9, "GB/s");
  }
  const double copied = fastest(10, [&] {
    cudaMemcpyAsync(data, reinterpret_cast<const char*>(data) + bytes / 2, bytes / 2, cudaMemcpyDeviceToDevice);
  });
  tell("copy_bandwidth_read_and_written", static_cast<double>(bytes) / copied / 1e9, "GB/s");
  cudaFree(data);
  cudaFree(sink);
}

// ---- wgmma against mma.sync -----------------------------------------------------------------------------------------
// C[64, N] = A[64, K] B[K, N] with F16 operands and f32 sums, K in steps of 16, as one chain of either instruction. A and B
// are stored as [row][k], B by columns of C.

__device__ std::uint32_t pair_at(const __half* row, int k) {
  std::uint32_t bits;
  memcpy(&bits, row + k, 4);
  return bits;
}

__global__ void by_mma(const __half* a, const __half* b, float* c, int n_total, int k_total) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row = 16 * warp + lane / 4, column = 2 * (lane % 4);
  for (int n = 0; n < n_total; n += 8) {
    float d[4] = {0, 0, 0, 0};
    for (int k = 0; k < k_total; k += 16) {
      const __half* const upper = a + static_cast<std::size_t>(row) * k_total + k;
      const __half* const lower = upper + 8 * static_cast<std::size_t>(k_total);
      const __half* const right = b + static_cast<std::size_t>(n + lane / 4) * k_total + k;
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(pair_at(upper, column)), "r"(pair_at(lower, column)), "r"(pair_at(upper, column + 8)),
            "r"(pair_at(lower, column + 8)), "r"(pair_at(right, column)), "r"(pair_at(right, column + 8)));
    }
    float* const out = c + static_cast<std::size_t>(row) * n_total + n + column;
    out[0] = d[0];
    out[1] = d[1];
    out[8 * static_cast<std::size_t>(n_total)] = d[2];
    out[8 * static_cast<std::size_t>(n_total) + 1] = d[3];
  }
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || (defined(__CUDA_ARCH_SPECIFIC__) && __CUDA_ARCH__ == 900)
#define LLORCH_PROBE_WGMMA 1
#endif

// wgmma's accumulators are operands by name, so each width has a text of its own.
template <int kN>
struct Wgmma;
#define LLORCH_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define LLORCH_16(i) LLORCH_4(i), LLORCH_4(i + 4), LLORCH_4(i + 8), LLORCH_4(i + 12)
#define LLORCH_64(i) LLORCH_16(i), LLORCH_16(i + 16), LLORCH_16(i + 32), LLORCH_16(i + 48)
#define LLORCH_WGMMA(n, sums, operands, ...)                                                              \
  template <>                                                                                             \
  struct Wgmma<n> {                                                                                       \
    static __device__ void step(float (&d)[n / 2], const std::uint32_t (&a)[4], std::uint64_t b) {        \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" sums "}, " operands         \
                   ", 1, 1, 1, 0;"                                                                        \
                   : __VA_ARGS__                                                                          \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                 \
    }                                                                                                     \
  };
LLORCH_WGMMA(8,
      "%0,%1,%2,%3",
             "{%4,%5,%6,%7}, %8", LLORCH_4(0))
LLORCH_WGMMA(16,
      "%0,%1,%2,%3,%4,%5,%6,%7",
             "{%8,%9,%10,%11}, %12", LLORCH_4(0), LLORCH_4(4))
LLORCH_WGMMA(32,
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15",
             "{%16,%17,%18,%19}, %20", LLORCH_16(0))
LLORCH_WGMMA(64,
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31",
             "{%32,%33,%34,%35}, %36", LLORCH_16(0), LLORCH_16(16))
LLORCH_WGMMA(128,
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63",
             "{%64,%65,%66,%67}, %68", LLORCH_64(0))
LLORCH_WGMMA(256,
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
      "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
      "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
      "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
      "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127",
             "{%128,%129,%130,%131}, %132", LLORCH_64(0), LLORCH_64(64))

// What a descriptor says of a tile of B in shared memory that is not swizzled: core matrices of 8 columns by 16 bytes of k, the
// two of a step kCore bytes apart, the next eight columns 2 * kCore further on. All in units of 16 bytes.
constexpr std::uint64_t kCore = 128;
__device__ std::uint64_t describe(const void* shared) {
  const auto address = static_cast<std::uint64_t>(__cvta_generic_to_shared(shared));
  return ((address & 0x3ffff) >> 4) | ((kCore >> 4) << 16) | ((2 * kCore >> 4) << 32);
}

template <int kN>
__global__ void by_wgmma(const __half* a, const __half* b, float* c, int k_total) {
#ifdef LLORCH_PROBE_WGMMA
  __shared__ alignas(128) __half tile[kN * 16];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row = 16 * warp + lane / 4, column = 2 * (lane % 4);
  float d[kN / 2];
#pragma unroll
  for (float& sum : d) sum = 0;
  for (int k = 0; k < k_total; k += 16) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kN * 16; i += static_cast<int>(blockDim.x)) {
      const int n = i / 16, at = i % 16;
      tile[(n / 8) * 128 + (at / 8) * 64 + (n % 8) * 8 + at % 8] = b[static_cast<std::size_t>(n) * k_total + k + at];
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const __half* const upper = a + static_cast<std::size_t>(row) * k_total + k;
    const __half* const lower = upper + 8 * static_cast<std::size_t>(k_total);
    const std::uint32_t left[4] = {pair_at(upper, column), pair_at(lower, column), pair_at(upper, column + 8),
                                   pair_at(lower, column + 8)};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    Wgmma<kN>::step(d, left, describe(tile));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
#pragma unroll
  for (int n = 0; n < kN / 8; ++n) {
    float* const out = c + static_cast<std::size_t>(row) * kN + 8 * n + column;
    out[0] = d[4 * n];
    out[1] = d[4 * n + 1];
    out[8 * kN] = d[4 * n + 2];
    out[8 * kN + 1] = d[4 * n + 3];
  }
#endif
}

template <int kN>
void compare(const __half* a, const __half* b, float* by_one, float* by_other, int k_total) {
  char name[64];
  std::snprintf(name, sizeof name, "wgmma_n%d_differs_from_mma_of_%d", kN, 64 * kN);
  by_mma<<<1, 128>>>(a, b, by_one, kN, k_total);
  by_wgmma<kN><<<1, 128>>>(a, b, by_other, k_total);
  std::vector<float> one(64 * kN), other(64 * kN);
  if (!ok(cudaMemcpy(one.data(), by_one, one.size() * 4, cudaMemcpyDeviceToHost), name)) return;
  if (!ok(cudaMemcpy(other.data(), by_other, other.size() * 4, cudaMemcpyDeviceToHost), name)) return;
  int differ = 0;
  double largest = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    differ += std::memcmp(&one[i], &other[i], 4) != 0 ? 1 : 0;
    largest = std::max(largest, std::abs(static_cast<double>(one[i]) - other[i]));
  }
  tell(name, differ, "elements");
  if (differ != 0) tell("  largest difference", largest, "");
}

void probe_wgmma(const cudaDeviceProp& properties) {
  if (properties.major != 9) {
    std::printf("{\"stage\":\"probe\",\"name\":\"wgmma\",\"skipped\":\"compute capability %d.%d has none\"}\n",
                properties.major, properties.minor);
    return;
  }
  constexpr int kK = 4096, kRows = 64, kColumns = 256;
  std::vector<__half> left(kRows * kK), right(kColumns * kK);
  std::uint32_t state = 1;
  const auto next = [&] {
    state = state * 1'664'525u + 1'013'904'223u;
    return __float2half((static_cast<float>(state >> 8) * 0x1p-24f - 0.5f) * 4);
  };
  for (__half& value : left) value = next();
  for (__half& value : right) value = next();
  __half *a = nullptr, *b = nullptr;
  float *one = nullptr, *other = nullptr;
  if (!ok(cudaMalloc(&a, left.size() * 2), "wgmma") || !ok(cudaMalloc(&b, right.size() * 2), "wgmma") ||
      !ok(cudaMalloc(&one, kRows * kColumns * 4), "wgmma") || !ok(cudaMalloc(&other, kRows * kColumns * 4), "wgmma"))
    return;
  cudaMemcpy(a, left.data(), left.size() * 2, cudaMemcpyHostToDevice);
  cudaMemcpy(b, right.data(), right.size() * 2, cudaMemcpyHostToDevice);
  compare<8>(a, b, one, other, kK);
  compare<16>(a, b, one, other, kK);
  compare<32>(a, b, one, other, kK);
  compare<64>(a, b, one, other, kK);
  compare<128>(a, b, one, other, kK);
  compare<256>(a, b, one, other, kK);
  for (void* memory : {static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(one), static_cast<void*>(other)})
    cudaFree(memory);
}

// ---- launches -------------------------------------------------------------------------------------------------------

__global__ void empty() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
#endif
}
// The last block of a launch to arrive goes on, as kernels do whose blocks join what they found.
__global__ void last_block_done(unsigned* arrived) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(arrived, 1) == gridDim.x - 1;
    if (last) *arrived = 0;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) __threadfence();
}
__global__ void no_last_block(unsigned* arrived) {
  if (arrived == nullptr) *arrived = 1;
}

void launch_empty(cudaStream_t stream, bool overlap) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(132);
  config.blockDim = dim3(128);
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = overlap ? 1 : 0;
  cudaLaunchKernelEx(&config, empty);
}

void probe_launches(const cudaDeviceProp& properties) {
  constexpr int kLaunches = 1000;
  cudaStream_t stream = nullptr;
  if (!ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "launches")) return;
  for (const bool overlap : {false, true}) {
    if (overlap && properties.major < 9) continue;
    const double plain = fastest(10, [&] {
      for (int i = 0; i < kLaunches; ++i) launch_empty(stream, overlap);
      cudaStreamSynchronize(stream);
    });
    tell(overlap ? "launch_overlapping" : "launch", plain / kLaunches * 1e6, "us");
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    if (!ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "graph_node")) return;
    for (int i = 0; i < kLaunches; ++i) launch_empty(stream, overlap);
    if (!ok(cudaStreamEndCapture(stream, &graph), "graph_node")) return;
    if (!ok(cudaGraphInstantiate(&executable, graph, 0), "graph_node")) return;
    const double replayed = fastest(10, [&] {
      cudaGraphLaunch(executable, stream);
      cudaStreamSynchronize(stream);
    });
    tell(overlap ? "graph_node_overlapping" : "graph_node", replayed / kLaunches * 1e6, "us");
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }
  unsigned* arrived = nullptr;
  if (!ok(cudaMalloc(&arrived, 4), "arrivals") || !ok(cudaMemset(arrived, 0, 4), "arrivals")) return;
  const auto timed = [&](auto* kernel) {
    return fastest(10, [&] {
      for (int i = 0; i < kLaunches; ++i) kernel<<<264, 128>>>(arrived);
    });
  };
  tell("last_block_done", (timed(last_block_done) - timed(no_last_block)) / kLaunches * 1e6, "us");
  cudaFree(arrived);
  cudaStreamDestroy(stream);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view only = argc > 1 ? argv[1] : "";
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    std::printf("nothing probed: no device (%s)\n", cudaGetErrorName(error));
    return 4;
  }
  cudaDeviceProp properties{};
  if (!ok(cudaGetDeviceProperties(&properties, 0), "device")) return 1;
  std::printf("{\"stage\":\"probe\",\"name\":\"device\",\"text\":\"%s, sm_%d%d, %d multiprocessors, %.1f GiB\"}\n",
              properties.name, properties.major, properties.minor, properties.multiProcessorCount,
              static_cast<double>(properties.totalGlobalMem) / (1 << 30));
  std::fflush(stdout);
  if (only == "--device-only") return 0;
  probe_reading(properties);
  if (only == "--read-only") return failed ? 1 : 0;
  probe_launches(properties);
  probe_wgmma(properties);
  return failed || !ok(cudaDeviceSynchronize(), "device") ? 1 : 0;
}
