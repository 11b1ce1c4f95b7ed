#pragma once
// Runs one instruction on a fresh device, the way an executor would: prepare, workspace of exactly the promised size,
// run.
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "engine/compute/cpu/backend.h"
#include "engine/compute/cpu/device.h"
#include "engine/compute/cpu/kernel_test_support.h"
#include "engine/compute/reference/exact.h"

namespace llorch::engine::compute::cpu::testing {

struct HarnessWeight {
  plan::DType dtype = plan::DType::kF32;
  std::vector<std::uint32_t> shape;
  std::vector<std::byte> stored;  // empty = absent

  static HarnessWeight random(Random& random, plan::DType dtype, std::vector<std::uint32_t> shape) {
    std::uint32_t rows = 1;
    for (std::size_t d = 0; d + 1 < shape.size(); ++d) rows *= shape[d];
    auto stored = random_matrix(random, {.dtype = dtype, .rows = rows, .cols = shape.back()});
    if (dtype == plan::DType::kF32)  // ordinary values: a chain of operators overflows on hostile ones
      for (std::size_t i = 0; i < stored.size(); i += 4) {
        const float value = random.normal() * 0.3f;
        std::memcpy(stored.data() + i, &value, sizeof value);
      }
    return {dtype, std::move(shape), std::move(stored)};
  }
  std::vector<float> floats() const {
    std::vector<float> out(stored.size() / sizeof(float));
    if (!stored.empty()) std::memcpy(out.data(), stored.data(), stored.size());
    return out;
  }
};

struct HarnessOptions {
  std::string isa;
  std::uint32_t threads = 1;
  plan::StepLimits limits{.rows_max = 64, .output_rows_max = 64, .slots_max = 2, .context_tokens_max = 256};
};

// Every instruction set of this machine with one thread and with several.
inline std::vector<HarnessOptions> devices() {
  std::vector<HarnessOptions> out;
  for (host::Isa isa : isas())
    for (std::uint32_t threads : {1u, 3u}) {
      out.push_back({});
      out.back().isa = host::isa_name(isa);
      out.back().threads = threads;
    }
  return out;
}

// That an instruction gives the bits of its scalar reference on each of these devices, all rows together and each alone.
// `world` has kRows, expected() and run(device, first row, rows).
template <class World>
void expect_same_row_by_row(World& world) {
  const auto expected = world.expected();
  for (const auto& device : devices()) {
    ASSERT_TRUE(same_bits(world.run(device, 0, World::kRows), expected)) << device.isa;
    std::vector<float> alone;
    for (std::uint32_t r = 0; r < World::kRows; ++r) {
      const auto y = world.run(device, r, 1);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    ASSERT_TRUE(same_bits(alone, expected)) << device.isa;
  }
}

// The scalar reference of a projection of rows.
inline std::vector<float> matmul_rows(const HarnessWeight& w, const std::vector<float>& x) {
  std::vector<float> out;
  for (std::size_t r = 0; r < x.size(); r += w.shape[1]) {
    const auto y =
        reference::matmul_exact(w.dtype, w.stored, w.shape[0], std::span<const float>(x).subspan(r, w.shape[1]));
    out.insert(out.end(), y.begin(), y.end());
  }
  return out;
}

inline void add_bias(std::vector<float>& y, const std::vector<float>& bias) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
}

class Harness {
 public:
  template <class P>
  Harness(const P& params, const std::vector<HarnessWeight>& weights, const HarnessOptions& options,
          std::size_t further_inputs = 0)
      : backend_(
            make_cpu_backend({.threads_count = options.threads, .memory_budget_bytes = 1u << 28, .isa = options.isa})
                .value()),
        params_(reinterpret_cast<const std::byte*>(&params),
                reinterpret_cast<const std::byte*>(&params) + sizeof params),
        block_{.version = 1, .opcode = P::kOpcode, .data = params_},
        inputs_(plan::opcode_info(P::kOpcode)->inputs + further_inputs, plan::reg(0)),
        outputs_(plan::opcode_info(P::kOpcode)->outputs, plan::reg(1)) {
    insn_ = {.opcode = P::kOpcode,
             .inputs = inputs_,
             .outputs = outputs_,
             .weights = {},
             .param_block_id = 0,
             .state_block_id = 0};
    const auto slots = *plan::weight_slots(P::kOpcode);
    regs_.resize(inputs_.size() + outputs_.size());
    views_.resize(inputs_.size() + outputs_.size());
    for (std::size_t s = 0; s < slots.size(); ++s) {
      plan::TensorViewDesc view;
      void* ptr = nullptr;
      if (s < weights.size() && !weights[s].stored.empty()) {
        const HarnessWeight& w = weights[s];
        plan::StoredTensor tensor{.dtype = w.dtype,
                                  .rank = static_cast<std::uint8_t>(w.shape.size()),
                                  .shape = {},
                                  .bytes = w.stored,
                                  .uses = static_cast<std::uint8_t>(slots[s].use)};
        std::copy(w.shape.begin(), w.shape.end(), tensor.shape.begin());
        ptr = backend_->upload_weight(tensor).value();
        view = {.dtype = w.dtype, .rank = tensor.rank, .shape = tensor.shape};
      }
      regs_.push_back({plan::kInvalidRegister, ptr});
      views_.push_back(view);
    }
    const std::size_t first = inputs_.size() + outputs_.size(), op = static_cast<std::size_t>(P::kOpcode);
    const plan::AdapterTables& tables = backend_->tables();
    const plan::PrepareArgs args{
        *backend_, insn_, block_, std::span(regs_).subspan(first), std::span(views_).subspan(first), options.limits};
    if (const auto checked = tables.prepare[op](args); !checked) {
      error_ = checked.error();
      return;
    }
    workspace_bytes_ = tables.workspace_bytes[op](block_, options.limits, *backend_);
    if (workspace_bytes_ != 0)
      workspace_ = backend_->allocate(workspace_bytes_, plan::MemoryPurpose::kWorkspace).value();
    prepared_ = {.fn = tables.run[op], .insn = &insn_, .regs = regs_, .views = views_, .states = {}, .params = &block_};
  }
  ~Harness() {
    for (std::size_t i = inputs_.size() + outputs_.size(); i < regs_.size(); ++i)
      backend_->release_weight(regs_[i].ptr);
    backend_->release(workspace_);
  }
  Harness(const Harness&) = delete;
  Harness& operator=(const Harness&) = delete;

  const std::optional<base::Error>& error() const { return error_; }

  // What the instruction's state is; the bytes are the caller's.
  void set_state(const plan::StateBlockHandle& state) {
    state_ = state;
    prepared_.states = {&state_, 1};
  }

  // `output` is not looked at when the opcode has none.
  void run(plan::ExecutionContext ctx, std::vector<const float*> inputs, float* output) {
    ctx.stream = backend_->stream();
    ctx.workspace = {workspace_, workspace_bytes_};
    for (std::size_t i = 0; i < workspace_bytes_; ++i)
      workspace_[i] = std::byte{0xFF};  // contents are undefined: make them NaN
    for (std::size_t i = 0; i < inputs.size(); ++i) regs_[i].ptr = const_cast<float*>(inputs[i]);
    if (!outputs_.empty()) regs_[inputs_.size()].ptr = output;
    const std::uint64_t allocations = base::testing::allocations_count();
    ASSERT_TRUE(prepared_.fn(ctx, prepared_).is_ok());
    EXPECT_EQ(base::testing::allocations_count(), allocations);
  }

 private:
  std::unique_ptr<plan::Backend> backend_;
  std::vector<std::byte> params_;  // operator new aligns to 16
  plan::ParamBlock block_;
  std::vector<plan::RegisterRef> inputs_, outputs_;
  plan::Instruction insn_;
  std::vector<plan::TensorHandle> regs_;
  std::vector<plan::TensorViewDesc> views_;
  std::byte* workspace_ = nullptr;
  std::uint64_t workspace_bytes_ = 0;
  plan::PreparedInsn prepared_;
  plan::StateBlockHandle state_;
  std::optional<base::Error> error_;
};

}  // namespace llorch::engine::compute::cpu::testing
