// What the CUDA kernels reach on the shapes of an 8B model: matrices with random weights, the step that narrows activations apart,
// attention over a cache, draws, loads. Device time of steps that are replayed as graphs where steps of decode are. One JSON line per
// case. LLORCH_READ_LIMIT is what the device reads in this minute, in GB/s (gpu_probe); without it a copy on the device stands
// for it. LLORCH_GPU=emulated runs everything on tiny shapes, to try the program. Exit status: 0; 1 after an error; 4 without a GPU.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "base/assert.h"
#include "engine/compute/cuda/adapters/attention/attend.h"
#include "engine/compute/cuda/adapters/support.h"
#include "engine/compute/cuda/emulation/driver.h"
#include "engine/compute/half.h"
#include "engine/io/quant/quantize.h"
#include "engine/plan/quant_blocks.h"

namespace {

using namespace llorch;
using engine::compute::cuda::CudaBackend;
using engine::compute::cuda::CudaWeight;
using engine::plan::DType;
using engine::plan::MemoryPurpose;
namespace adapters = engine::compute::cuda::adapters;
namespace kernels = engine::compute::cuda::kernels;
namespace emulation = engine::compute::cuda::emulation;

struct Case {
  const char* name;
  std::uint32_t n, k;
};
// What is measured: an 8B model's shapes on a GPU, anything on the emulated one.
struct Plan {
  std::vector<Case> matrices{
      {"q", 4096, 4096}, {"kv", 1024, 4096}, {"up", 14336, 4096}, {"down", 4096, 14336}, {"head", 128256, 4096}};
  std::vector<std::uint32_t> rows{1, 8, 64, 512, 2048};
  std::vector<std::uint32_t> contexts{1024, 8192};
  std::vector<std::uint32_t> batches{1, 8, 64};
  std::uint32_t vocabulary = 152'064;
  std::uint64_t weights_bytes = 1u << 30;  // of one case: far more than a cache holds
  std::uint64_t copy_bytes = 4ULL << 30;
  std::uint64_t load_bytes = 16ULL << 30;
  int launches = 50;  // of a step
  int steps = 5;
};
Plan tiny() {
  return {.matrices = {{"q", 64, 256}},
          .rows = {1, 8},
          .contexts = {300},
          .batches = {1, 2},
          .vocabulary = 1000,
          .weights_bytes = 1 << 16,
          .copy_bytes = 1 << 20,
          .load_bytes = 1 << 20,
          .launches = 2,
          .steps = 1};
}

// Device seconds of one of `launches` calls of `work`, which is told which it is.
template <class Work>
double device_time(CudaBackend& backend, const Plan& plan, int launches, std::uint32_t rows, const Work& work) {
  engine::plan::ExecutionContext step;
  step.mode = engine::plan::ExecutionMode::kDecode;  // replayed, once it has come twice
  step.total_rows = rows;
  const auto run = [&] {
    backend.begin_step(step);
    for (int i = 0; i < launches; ++i) work(static_cast<std::size_t>(i));
    backend.end_step();
  };
  for (int i = 0; i < 3; ++i) run();
  if (!backend.synchronize()) return 0;
  backend.time_steps(true);
  for (int i = 0; i < plan.steps; ++i) run();
  const double seconds = backend.take_step_times().seconds;
  backend.time_steps(false);
  return seconds / plan.steps / launches;
}

class Memory {
 public:
  Memory(CudaBackend& backend, std::uint64_t bytes)
      : backend_(backend), ptr_(backend.allocate(bytes, MemoryPurpose::kWorkspace).value()) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { backend_.release(ptr_); }
  std::byte* get() const { return ptr_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(ptr_);
  }
  template <class T>
  void fill(const std::vector<T>& values) const {
    backend_.copy_to_device(ptr_, std::as_bytes(std::span(values)));
  }

 private:
  CudaBackend& backend_;
  std::byte* const ptr_;
};

double read_limit(CudaBackend& backend, const Plan& plan) {
  if (const char* const given = std::getenv("LLORCH_READ_LIMIT")) return std::atof(given) * 1e9;
  const Memory from(backend, plan.copy_bytes), to(backend, plan.copy_bytes);
  backend.copy_on_device(to.get(), from.get(), plan.copy_bytes);
  if (!backend.synchronize()) return 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) backend.copy_on_device(to.get(), from.get(), plan.copy_bytes);
  if (!backend.synchronize()) return 0;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return 2.0 * static_cast<double>(plan.copy_bytes) * 10 / took.count();
}

// No file holds these, so no quantizer makes them: any codes that are numbers, under scales as weights have them.
void random_f8_row(std::span<std::byte> row, std::mt19937& random) {
  for (std::size_t at = 0; at < row.size(); at += sizeof(engine::plan::BlockF8_E4M3)) {
    engine::plan::BlockF8_E4M3 block{.d = std::uniform_real_distribution<float>(1e-4f, 3e-4f)(random), .qs = {}};
    for (std::uint8_t& code : block.qs) {
      code = static_cast<std::uint8_t>(random());
      if ((code & 0x7F) == 0x7F) code = 0;
    }
    std::memcpy(row.data() + at, &block, sizeof block);
  }
}

// Rows of normal numbers as `dtype` stores them: some, repeated.
std::vector<std::byte> random_weights(DType dtype, std::uint32_t n, std::uint32_t k, std::mt19937& random) {
  constexpr std::uint32_t kRows = 16;
  const std::size_t row_bytes = engine::plan::row_bytes(dtype, k);
  std::vector<std::byte> some(kRows * row_bytes), all(n * row_bytes);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> values(k);
  for (std::uint32_t row = 0; row < kRows; ++row) {
    const auto to = std::span(some).subspan(row * row_bytes, row_bytes);
    if (dtype == DType::kF8_E4M3) {
      random_f8_row(to, random);
      continue;
    }
    for (float& value : values) value = normal(random);
    const auto stored = engine::io::quantize_row(dtype, values, to);
    ASSERT(stored.has_value(), "{}", stored.has_value() ? "" : stored.error().message);
  }
  for (std::uint32_t row = 0; row < n; ++row)
    std::copy_n(some.begin() + static_cast<std::ptrdiff_t>(row % kRows * row_bytes), row_bytes,
                all.begin() + static_cast<std::ptrdiff_t>(row * row_bytes));
  return all;
}
// Normal numbers: some, repeated.
std::vector<float> random_rows(std::size_t count, std::mt19937& random) {
  constexpr std::size_t kDrawn = 1 << 16;
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = i < kDrawn ? normal(random) : values[i - kDrawn];
  return values;
}
// So many that a step takes some milliseconds: rounded by how fast a GPU could be at most.
int launches_of(const Plan& plan, const Case& shape, std::uint32_t rows) {
  constexpr double kProductsPerStep = 4e-3 * 4e14;
  return std::clamp(static_cast<int>(kProductsPerStep / (2.0 * shape.n * shape.k * rows)), 2, plan.launches);
}

void measure_matrix(CudaBackend& backend, const Plan& plan, DType dtype, const Case& shape, double limit) {
  std::mt19937 random(1);
  const std::vector<std::byte> stored = random_weights(dtype, shape.n, shape.k, random);
  std::vector<void*> weights(std::max<std::size_t>(1, plan.weights_bytes / stored.size()));
  for (void*& weight : weights)
    weight = backend
                 .upload_weight({.dtype = dtype,
                                 .rank = 2,
                                 .shape = {shape.n, shape.k},
                                 .bytes = stored,
                                 .uses = static_cast<std::uint8_t>(engine::plan::WeightUse::kMatrix)})
                 .value();
  for (const std::uint32_t rows : plan.rows) {
    if (rows > 64 && shape.n > 100'000) continue;  // a head multiplies one row a sequence
    const Memory x(backend, std::uint64_t{rows} * shape.k * 4), y(backend, std::uint64_t{rows} * shape.n * 4);
    x.fill(random_rows(std::size_t{rows} * shape.k, random));
    adapters::Arena size;
    size.take_narrowed(rows, shape.k);
    const Memory scratch(backend, size.used_bytes());
    adapters::Arena arena(engine::plan::Workspace{scratch.get(), size.used_bytes()});
    adapters::ProjectionInput input{.x = x.as<const float>(),
                                    .x_stride = shape.k,
                                    .rows = rows,
                                    .narrowed = arena.take_narrowed(rows, shape.k),
                                    .y_stride = shape.n};
    const auto& stream = *static_cast<const engine::compute::cuda::CudaStream*>(backend.stream().ptr);
    const auto timed = [&] {
      return device_time(backend, plan, launches_of(plan, shape, rows), rows, [&](std::size_t i) {
        const auto* weight = static_cast<const CudaWeight*>(weights[i % weights.size()]);
        adapters::project(stream, input, std::array{adapters::Projection{weight, y.as<float>()}});
      });
    };
    const double both = timed();
    // The rows lie there narrowed now; the second time the matrix finds them so.
    input.staged = adapters::staged_in(input.narrowed, engine::compute::cuda::form_of(dtype));
    const double seconds = timed();
    const double bandwidth = static_cast<double>(stored.size()) / seconds;
    fmt::print(
        R"({{"stage":"speed","name":"matmul","type":"{}","shape":"{}","n":{},"k":{},"rows":{},"us":{:.2f},"narrow_us":{:.2f},)"
        R"("GB_s":{:.1f},"of_read_limit":{:.3f},"TFLOP_s":{:.2f}}})"
        "\n",
        engine::plan::dtype_info(dtype).name, shape.name, shape.n, shape.k, rows, seconds * 1e6, (both - seconds) * 1e6,
        bandwidth / 1e9, bandwidth / limit, 2.0 * shape.n * shape.k * rows / seconds / 1e12);
  }
  for (void* weight : weights) backend.release_weight(weight);
}

// One row of every sequence over `context` positions of its own, heads and widths of an 8B model.
void measure_attention(CudaBackend& backend, const Plan& plan, std::uint32_t batch, std::uint32_t context,
                       double limit) {
  constexpr std::uint32_t kHeads = 32, kKvHeads = 8, kWidth = 128;
  std::mt19937 random(2);
  const engine::plan::KvLayout layout{.dtype = DType::kF16, .kv_heads = kKvHeads, .d_qk = kWidth, .d_v = kWidth};
  const std::uint32_t pages_each = adapters::blocks_of(context, kernels::kPage);
  const std::uint64_t page_bytes = layout.page_bytes(), pages_count = std::uint64_t{batch} * pages_each;
  const Memory cache(backend, pages_count * page_bytes);
  std::normal_distribution<float> normal(0, 1);
  std::vector<std::uint16_t> page(page_bytes / 2);
  for (std::uint16_t& value : page) value = engine::compute::float_to_half(normal(random));
  std::vector<std::byte*> pages(pages_count);
  for (std::uint64_t i = 0; i < pages_count; ++i) {
    pages[i] = cache.get() + i * page_bytes;
    backend.copy_to_device(pages[i], std::as_bytes(std::span(page)));
  }
  std::vector<std::uint32_t> sequence(batch), positions(batch, context - 1);
  for (std::uint32_t i = 0; i < batch; ++i) sequence[i] = i;
  const Memory pages_at(backend, pages.size() * sizeof(std::byte*)), sequence_at(backend, batch * 4),
      positions_at(backend, batch * 4);
  pages_at.fill(pages);
  sequence_at.fill(sequence);
  positions_at.fill(positions);
  const Memory q(backend, std::uint64_t{batch} * kHeads * kWidth * 4),
      out(backend, std::uint64_t{batch} * kHeads * kWidth * 4);
  q.fill(random_rows(std::size_t{batch} * kHeads * kWidth, random));
  const adapters::AttentionShape shape{.heads = kHeads, .kv_heads = kKvHeads, .d_v = kWidth};
  const std::uint64_t parts_bytes = std::max<std::uint64_t>(shape.parts_bytes_wanted(batch, context), 256);
  const Memory parts(backend, parts_bytes);
  const auto& stream = *static_cast<const engine::compute::cuda::CudaStream*>(backend.stream().ptr);
  const kernels::AttentionArgs<kernels::KvPages> args{.q = q.as<const float>(),
                                                      .q_stride = kHeads * kWidth,
                                                      .out = out.as<float>(),
                                                      .heads = kHeads,
                                                      .kv_heads = kKvHeads,
                                                      .d_qk = kWidth,
                                                      .d_v = kWidth,
                                                      .scale = 0.088388f,
                                                      .from = {.pages = pages_at.as<std::byte*>(),
                                                               .pages_stride = pages_each,
                                                               .sequence_of_row = sequence_at.as<std::uint32_t>(),
                                                               .positions = positions_at.as<std::uint32_t>()}};
  const double seconds = device_time(backend, plan, plan.launches, batch, [&](std::size_t) {
    adapters::attend<kernels::PagedKeys<DType::kF16>>(stream, args, batch, context, {parts.get(), parts_bytes});
  });
  const double bandwidth = static_cast<double>(pages_count * page_bytes) / seconds;
  fmt::print(
      R"({{"stage":"speed","name":"attention","batch":{},"context":{},"us":{:.2f},"GB_s":{:.1f},"of_read_limit":{:.3f}}})"
      "\n",
      batch, context, seconds * 1e6, bandwidth / 1e9, bandwidth / limit);
}

// A draw from each of some rows, from the copy that gives them back their values to the ids on the host.
void measure_draws(CudaBackend& backend, const Plan& plan, const char* name, float spread, std::uint32_t rows,
                   float temperature) {
  const engine::plan::DrawLimits limits{.rows_max = rows, .width = plan.vocabulary, .edits_max = 1};
  const auto device_sampler = backend.make_device_sampler(limits).value();
  const std::uint64_t bytes = std::uint64_t{rows} * plan.vocabulary * sizeof(float);
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(-spread, 0);
  std::vector<float> values(std::size_t{rows} * plan.vocabulary);
  for (float& value : values) value = uniform(random);
  const Memory kept(backend, bytes), drawn_from(backend, bytes);
  kept.fill(values);
  std::vector<engine::plan::RowDraw> draws(rows);
  for (std::uint32_t i = 0; i < rows; ++i)
    draws[i] = {.row = i, .temperature = temperature, .top_p = 0.95f, .uniform = 0.5f};
  const auto draw = [&] {
    backend.copy_on_device(drawn_from.get(), kept.get(), bytes);
    device_sampler->draw(drawn_from.as<float>(), draws);
    return device_sampler->wait().has_value();
  };
  if (!draw()) return;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < plan.launches; ++i)
    if (!draw()) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  fmt::print(R"({{"stage":"speed","name":"draw","rows_are":"{}","width":{},"rows":{},"us":{:.1f}}})"
             "\n",
             name, plan.vocabulary, rows, took.count() / plan.launches * 1e6);
}

// Weights from memory, as a load has them from the page cache: read, copied, packed.
void measure_load(CudaBackend& backend, const Plan& plan, DType dtype) {
  const Case shape = plan.matrices.back().n > plan.matrices.front().n ? Case{"up", 14336, 4096} : plan.matrices.front();
  std::mt19937 random(4);
  const std::vector<std::byte> stored = random_weights(dtype, shape.n, shape.k, random);
  const std::vector<engine::plan::StoredTensor> tensors(
      std::max<std::size_t>(1, plan.load_bytes / (std::size_t{shape.n} * shape.k * 2)),
      {.dtype = dtype,
       .rank = 2,
       .shape = {shape.n, shape.k},
       .bytes = stored,
       .uses = static_cast<std::uint8_t>(engine::plan::WeightUse::kMatrix)});
  std::vector<void*> weights(tensors.size());
  const auto begin = std::chrono::steady_clock::now();
  const auto loaded = backend.upload_weights(tensors, weights, {});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const char* const type = engine::plan::dtype_info(dtype).name.data();
  if (!loaded) {
    fmt::print(R"({{"stage":"speed","name":"load","type":"{}","error":"{}"}})"
               "\n",
               type, loaded.error().name());
    return;
  }
  const double bytes = static_cast<double>(stored.size() * tensors.size());
  fmt::print(R"({{"stage":"speed","name":"load","type":"{}","GB":{:.1f},"s":{:.3f},"GB_s":{:.1f}}})"
             "\n",
             type, bytes / 1e9, seconds, bytes / seconds / 1e9);
  for (void* weight : weights) backend.release_weight(weight);
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // whoever ends it early has what was measured
  auto made = emulation::make_gpu_backend(0);
  if (!made) {
    fmt::print("nothing measured: {}\n", made.error().message);
    return 4;
  }
  auto& backend = static_cast<CudaBackend&>(**made);
  const Plan plan = emulation::is_emulated() ? tiny() : Plan{};
  const double limit = read_limit(backend, plan);
  fmt::print(R"({{"stage":"speed","name":"device","text":"{}","read_limit_GB_s":{:.1f}}})"
             "\n",
             backend.device_class(), limit / 1e9);
  constexpr std::array kTypes{DType::kBF16, DType::kF8_E4M3, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K};
  for (const DType dtype : kTypes)
    for (const Case& shape : plan.matrices) measure_matrix(backend, plan, dtype, shape, limit);
  for (const std::uint32_t batch : plan.batches)
    for (const std::uint32_t context : plan.contexts) measure_attention(backend, plan, batch, context, limit);
  for (const DType dtype : kTypes) measure_load(backend, plan, dtype);
  // Every entry a candidate, about a sixth of them, and the largest.
  for (const std::uint32_t rows : {1u, 64u}) {
    measure_draws(backend, plan, "flat", 3, rows, 1.0f);
    measure_draws(backend, plan, "spread", 100, rows, 1.0f);
    measure_draws(backend, plan, "largest", 100, rows, 0.0f);
  }
  if (const auto healthy = backend.synchronize(); !healthy) {
    fmt::print(R"({{"stage":"speed","name":"device","error":"{}"}})"
               "\n",
               healthy.error().name());
    return 1;
  }
  return 0;
}
