#include "engine/models/plan_compiler/shard.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/models/model.h"
#include "engine/models/testing/tiny_llama.h"

namespace llorch::engine::models {
namespace {

using namespace plan;
using base::ErrorCode;
using testing::TinyLlama;

base::Result<CompiledModel> compile(const TinyLlama& tiny, const Shard& shard) {
  const std::vector<std::byte> bytes = tiny.bytes();
  const auto files = io::ModelFiles::from_gguf(io::GgufFile::parse(bytes).value());
  auto model = compile_model(*files, DType::kF16, {}, shard);
  if (model) {
    for (BoundTensor& tensor : model->tensors) tensor.parts.clear();  // views into the files, which close here
  }
  return model;
}

const BoundTensor& tensor(const CompiledModel& model, std::string_view name) {
  return *std::ranges::find(model.tensors, name, &BoundTensor::name);
}

// SYS-6.3.3
TEST(Shard, HeadsAndFeedForwardAreSharedOut) {
  const TinyLlama tiny{.layers = 1, .tied = false};
  const CompiledModel whole = compile(tiny, {}).value();
  const CompiledModel half = compile(tiny, {.rank = 1, .ranks = 2}).value();
  const auto shape = [&](const char* name) {
    const plan::StoredTensor& stored = tensor(half, name).stored;
    return std::pair{stored.shape[0], stored.shape[1]};
  };
  using Pair = std::pair<std::uint32_t, std::uint32_t>;
  EXPECT_EQ(shape("blk.0.attn_q.weight"), Pair(32, 64));
  EXPECT_EQ(shape("blk.0.attn_k.weight"), Pair(16, 64));
  EXPECT_EQ(shape("blk.0.attn_v.weight"), Pair(16, 64));
  EXPECT_EQ(shape("blk.0.attn_output.weight"), Pair(64, 32));
  EXPECT_EQ(shape("blk.0.ffn_gate.weight"), Pair(48, 64));
  EXPECT_EQ(shape("blk.0.ffn_up.weight"), Pair(48, 64));
  EXPECT_EQ(shape("blk.0.ffn_down.weight"), Pair(64, 48));
  EXPECT_EQ(shape("token_embd.weight"), Pair(40, 64));
  EXPECT_EQ(shape("output.weight"), Pair(20, 64));
  const auto page = [](const CompiledModel& model) {
    return model.plans.decoder_decode.plan.state_descs[0].size_bytes;
  };
  EXPECT_EQ(2 * page(half), page(whole));
  EXPECT_EQ(half.parameters_count, whole.parameters_count);
}

// The head's rows are, where they are its own and divide: a rank computes so much of every row of logits.
TEST(Shard, SoIsTheVocabulary) {
  const auto width = [](const TinyLlama& tiny, const Shard& shard) {
    const CompiledModel model = compile(tiny, shard).value();
    const CompiledPlan& plan = model.plans.decoder_decode;
    return plan.register_specs[index(plan.plan.instructions.back().outputs[0])].width;
  };
  EXPECT_EQ(width({.tied = false}, {}), 40U);
  EXPECT_EQ(width({.tied = false}, {.rank = 1, .ranks = 2}), 20U);
  EXPECT_EQ(width({.tied = false}, {.rank = 3, .ranks = 4}), 10U);
  EXPECT_EQ(width({.tied = true}, {.rank = 1, .ranks = 2}), 40U);
  EXPECT_EQ(width({.vocab = 41, .tied = false}, {.rank = 1, .ranks = 2}), 41U);
}

// Fewer key-value heads than devices: each is on as many as read it, and takes of a device's cache what it takes.
TEST(Shard, KeyValueHeadsAreRepeated) {
  const TinyLlama tiny{.layers = 1, .biases = true};
  for (const std::uint32_t rank : {0U, 1U, 2U, 3U}) {
    const std::vector<std::byte> bytes = tiny.bytes();
    const auto files = io::ModelFiles::from_gguf(io::GgufFile::parse(bytes).value());
    const CompiledModel whole = compile_model(*files, DType::kF16, {}, {}).value();
    const CompiledModel own = compile_model(*files, DType::kF16, {}, {.rank = rank, .ranks = 4}).value();
    for (const char* name : {"blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_k.bias", "blk.0.attn_v.bias"}) {
      const BoundTensor& all = tensor(whole, name);
      const BoundTensor& part = tensor(own, name);
      EXPECT_EQ(part.stored.shape[0], 16U) << name;
      const std::uint64_t head = 16 * (all.stored.rank == 2 ? 64 : 1);
      EXPECT_EQ(part.parts[0].offset - all.parts[0].offset, rank / 2 * head) << name << " of rank " << rank;
    }
    EXPECT_EQ(tensor(own, "blk.0.attn_q.weight").stored.shape[0], 16U);
    EXPECT_EQ(tensor(own, "blk.0.attn_output.weight").stored.shape[1], 16U);
    const auto page = [](const CompiledModel& model) {
      return model.plans.decoder_decode.plan.state_descs[0].size_bytes;
    };
    EXPECT_EQ(2 * page(own), page(whole));
  }
}

// Every column once, in rank order; between blocks wherever there is one for each.
TEST(Shard, AWidthIsCutBetweenBlocks) {
  for (std::uint32_t width = 1; width <= 96; ++width) {
    for (const std::uint32_t block : {1U, 8U, 32U}) {
      for (std::uint32_t ranks = 1; ranks <= 5; ++ranks) {
        const std::uint32_t blocks = (width + block - 1) / block;
        std::uint32_t end = 0, most = 0, least = width;
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
          const auto part = part_of(width, block, {.rank = rank, .ranks = ranks});
          const bool possible = width % ranks == 0 || (block > 1 && blocks >= ranks);
          ASSERT_EQ(part.has_value(), possible) << width << " in " << block << " over " << ranks;
          if (!part) continue;
          EXPECT_EQ(part->begin, end);
          EXPECT_GT(part->count, 0U);
          EXPECT_EQ(part->begin % (blocks >= ranks ? block : 1), 0U) << width << " in " << block << " over " << ranks;
          end = part->begin + part->count;
          most = std::max(most, part->count), least = std::min(least, part->count);
        }
        if (end == 0) continue;
        EXPECT_EQ(end, width);
        EXPECT_LE(most - least, width % block == 0 ? block : 2 * block);
      }
    }
  }
}

// Of a feed-forward whose columns are in blocks, each rank has whole ones: rows of gate and up, columns of down.
TEST(Shard, SoAreTheFeedForwardsOfBlockTypes) {
  const auto shapes = [](DType down, const Shard& shard) {
    const CompiledModel own = compile({.layers = 1, .types = {{"blk.0.ffn_down.weight", down}}}, shard).value();
    EXPECT_EQ(tensor(own, "blk.0.ffn_gate.weight").stored.shape[0], tensor(own, "blk.0.ffn_up.weight").stored.shape[0]);
    return std::pair{tensor(own, "blk.0.ffn_up.weight").stored.shape[0],
                     tensor(own, "blk.0.ffn_down.weight").stored.shape[1]};
  };
  using Pair = std::pair<std::uint32_t, std::uint32_t>;
  EXPECT_EQ(shapes(DType::kQ8_0, {.rank = 0, .ranks = 2}), Pair(64, 64));
  EXPECT_EQ(shapes(DType::kQ8_0, {.rank = 1, .ranks = 2}), Pair(32, 32));
  EXPECT_EQ(shapes(DType::kF16, {.rank = 0, .ranks = 2}), Pair(48, 48));
  // Fewer blocks than devices.
  EXPECT_EQ(compile({.types = {{"blk.0.ffn_down.weight", DType::kQ8_0}, {"blk.1.ffn_down.weight", DType::kQ8_0}}},
                    {.rank = 0, .ranks = 4})
                .error()
                .message,
            "blk.0.ffn_down.weight: 24 of 96 columns per device do not end with a block of Q8_0, which holds 32; use "
            "fewer devices, or a file of another type");
}

TEST(Shard, WhatIsSummedIsMarked) {
  for (std::uint32_t ranks : {1U, 2U}) {
    const CompiledModel model = compile({}, {.rank = 0, .ranks = ranks}).value();
    for (const CompiledPlan* plan : {&model.plans.decoder_prefill, &model.plans.decoder_decode}) {
      for (const Instruction& insn : plan->plan.instructions) {
        const bool narrows = insn.opcode == Opcode::kMultiheadAttention || insn.opcode == Opcode::kSwiglu;
        EXPECT_EQ(insn.partial_sum, narrows && ranks == 2) << opcode_name(insn.opcode);
      }
    }
  }
}

TEST(Shard, EveryRankHasAPlanOfItsOwnAndOneDeviceTheOldOne) {
  const auto hash = [](const Shard& shard) { return compile({}, shard).value().plans.decoder_prefill.plan_hash; };
  EXPECT_NE(hash({}), hash({.rank = 0, .ranks = 2}));
  EXPECT_EQ(hash({.rank = 0, .ranks = 2}), hash({.rank = 1, .ranks = 2}));  // which slices it holds is the loader's
}

// A bias behind the sum is added once.
TEST(Shard, TheFirstRankAddsTheBiases) {
  const TinyLlama tiny{.layers = 1, .biases = true};
  for (std::uint32_t rank : {0U, 1U}) {
    const CompiledModel model = compile(tiny, {.rank = rank, .ranks = 2}).value();
    for (const char* name : {"blk.0.attn_output.bias", "blk.0.ffn_down.bias"})
      EXPECT_EQ(tensor(model, name).step == TensorStep::kZeros, rank != 0) << name;
    EXPECT_EQ(tensor(model, "blk.0.ffn_up.bias").stored.shape[0], 48U);
  }
}

TEST(Shard, WhatNeedsAllHeadsIsRefused) {
  AttentionParams norm{};
  norm.heads = 4, norm.kv_heads = 2, norm.qk_norm = QkNorm::kPerRow;
  AttentionParams gate{};
  gate.heads = 4, gate.kv_heads = 2, gate.gate = AttentionGate::kPerElement;
  for (const AttentionParams& whole : {norm, gate}) {
    AttentionParams own = whole;
    EXPECT_EQ(share_out(own, {.rank = 0, .ranks = 2}, 1).error().code, ErrorCode::kModelIncompatible);
    own = whole;
    EXPECT_TRUE(share_out(own, {.rank = 0, .ranks = 1}, 1));
  }
}

TEST(Shard, WhatDoesNotDivideIsRefusedWithTheNumbers) {
  const auto refusal = [](const TinyLlama& tiny, std::uint32_t ranks) {
    const auto model = compile(tiny, {.rank = 0, .ranks = ranks});
    EXPECT_FALSE(model);
    EXPECT_EQ(model.error().code, ErrorCode::kModelIncompatible);
    return model.error().message;
  };
  EXPECT_EQ(refusal({}, 3), "4 attention heads cannot be shared out evenly over 3 devices");
  EXPECT_EQ(refusal({.width = 192, .heads = 12, .kv_heads = 6}, 4),
            "6 key-value heads cannot be shared out evenly over 4 devices");
  EXPECT_EQ(refusal({.width = 96, .heads = 6, .kv_heads = 2}, 3),
            "2 key-value heads cannot be shared out evenly over 3 devices");
  EXPECT_EQ(refusal({.ffn = 95}, 2), "95 feed-forward features cannot be shared out evenly over 2 devices");
}

}  // namespace
}  // namespace llorch::engine::models
