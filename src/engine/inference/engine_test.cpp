#include "engine/inference/engine.h"

#include <gtest/gtest.h>

#include "base/testing/allocation_counter.h"
#include "engine/inference/testing/tiny_engine.h"

namespace llorch::engine::inference {
namespace {

using base::ErrorCode;
using base::TokenId;
using models::testing::TinyLlama;
using plan::MemoryPurpose;
using plan::Opcode;
using testing::ids;
using testing::Loaded;
using testing::many;
using testing::ModelFile;
using testing::RecordingBackend;

TEST(EngineLoad, PredictsMemoryToTheByte) {
  const ModelFile file(TinyLlama{.layers = 3});
  for (const EngineOptions& options :
       {EngineOptions{},
        EngineOptions{.context_tokens = 65, .slots = 3, .kv_dtype = plan::DType::kF32, .prefill_chunk = 5},
        EngineOptions{.context_tokens = 1, .prefill_chunk = 1}, EngineOptions{.output_rows_max = 100},
        EngineOptions{.context_tokens = 150, .slots = 9, .kv_tokens = 500, .kv_tokens_max = 900},
        EngineOptions{.slots = 2, .kv_tokens = 5000}}) {
    RecordingBackend backend;
    const auto predicted = Engine::predict(file.path(), options, backend);
    ASSERT_TRUE(predicted) << predicted.error().message;
    EXPECT_EQ(backend.memory_used_bytes(), 0U);
    const auto engine = Engine::load(file.path(), options, backend);
    ASSERT_TRUE(engine) << engine.error().message;
    EXPECT_EQ(predicted->total_bytes(), backend.memory_used_bytes());
    EXPECT_EQ(predicted->weights_bytes, backend.bytes_by_purpose[MemoryPurpose::kWeights]);
    EXPECT_EQ(predicted->state_bytes, backend.bytes_by_purpose[MemoryPurpose::kState]);
    EXPECT_EQ(predicted->activations_bytes, backend.bytes_by_purpose[MemoryPurpose::kActivations]);
    EXPECT_EQ(predicted->workspace_bytes, backend.bytes_by_purpose[MemoryPurpose::kWorkspace]);
    EXPECT_EQ(predicted->tables_bytes, backend.bytes_by_purpose[MemoryPurpose::kTables]);
  }
}

TEST(EngineLoad, RefusesWhatDoesNotFitBeforeTouchingTheDevice) {
  const ModelFile file;
  std::uint64_t needed = 0;
  {
    RecordingBackend probe;
    needed = Engine::predict(file.path(), {}, probe)->total_bytes();
  }
  RecordingBackend exact({.memory_bytes_max = needed});
  EXPECT_TRUE(Engine::load(file.path(), {}, exact));
  RecordingBackend small({.memory_bytes_max = needed - 1});
  const auto refused = Engine::load(file.path(), {}, small);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfDeviceMemory);
  EXPECT_NE(refused.error().message.find(std::to_string(needed)), std::string::npos) << refused.error().message;
  EXPECT_EQ(refused.error().details.size(), 4U);
  EXPECT_TRUE(small.bytes_by_purpose.empty());
}

TEST(EngineLoad, ReleasesEverything) {
  const ModelFile file;
  RecordingBackend backend;
  { ASSERT_TRUE(Engine::load(file.path(), {}, backend)); }
  EXPECT_EQ(backend.memory_used_bytes(), 0U);
}

TEST(EngineLoad, OneCopyOfATiedHead) {
  const Loaded tied({}, {.tied = true});
  const Loaded untied({}, {.tied = false});
  EXPECT_EQ(tied.backend.upload_uses.size() + 1, untied.backend.upload_uses.size());
}

// M0-W-1621
TEST(EngineLoad, ReportsQuartersOnce) {
  const ModelFile file;
  RecordingBackend backend;
  std::vector<unsigned> seen;
  ASSERT_TRUE(Engine::load(file.path(), {}, backend, [&](unsigned percent) { seen.push_back(percent); }));
  EXPECT_EQ(seen, (std::vector<unsigned>{0, 25, 50, 75, 100}));
}

TEST(EngineLoad, RefusesOpcodesBatchesAndTypesTheBackendLacks) {
  const ModelFile file;
  const auto code_of = [&](const RecordingBackend::Options& device, const EngineOptions& options) {
    RecordingBackend backend(device);
    const auto engine = Engine::load(file.path(), options, backend);
    EXPECT_FALSE(engine);
    EXPECT_EQ(backend.memory_used_bytes(), 0U);
    return engine ? ErrorCode::kInternal : engine.error().code;
  };
  EXPECT_EQ(code_of({.without = Opcode::kSwiglu}, {}), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code_of({.batches = false}, {.slots = 3}), ErrorCode::kBatchUnsupported);
  EXPECT_EQ(code_of({.matrix_types = plan::dtype_bit(plan::DType::kF16)}, {}), ErrorCode::kWeightDTypeUnsupported);
}

// Who only asks what a load would take hears it too, and no weight is uploaded first.
TEST(EngineLoad, WhatADeviceHasNoKernelForIsToldBeforeWeightsAreLoaded) {
  const ModelFile file;
  RecordingBackend backend({.refuses = Opcode::kLmHead});
  const auto predicted = Engine::predict(file.path(), {}, backend);
  ASSERT_FALSE(predicted);
  EXPECT_EQ(predicted.error().code, ErrorCode::kUnsupportedOpcode) << predicted.error().message;
  std::vector<unsigned> seen;
  const auto engine = Engine::load(file.path(), {}, backend, [&](unsigned percent) { seen.push_back(percent); });
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kUnsupportedOpcode) << engine.error().message;
  EXPECT_TRUE(seen.empty());
}

// A load may become smaller first; what is then too long is refused, and no weight is uploaded.
TEST(EngineLoad, AContextBeyondTheKernelsIsToldBeforeWeightsAreLoaded) {
  const ModelFile file;
  RecordingBackend backend({.context_tokens_max = 100});
  const auto predicted = Engine::predict(file.path(), {}, backend);
  ASSERT_FALSE(predicted);
  EXPECT_EQ(predicted.error().code, ErrorCode::kUnsupportedOpcode) << predicted.error().message;
  const auto engine = Engine::load(file.path(), {}, backend);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kUnsupportedOpcode) << engine.error().message;
  EXPECT_TRUE(backend.upload_uses.empty());
  const auto half = Engine::predict(file.path(), {.context_tokens = 96}, backend);
  ASSERT_TRUE(half) << half.error().message;
  RecordingBackend small({.memory_bytes_max = half->total_bytes(), .context_tokens_max = 100});
  const auto smaller = Engine::load(file.path(), {.floors = {.context_tokens = 64}}, small);
  ASSERT_TRUE(smaller) << smaller.error().message;
  EXPECT_EQ((*smaller)->facts().context_tokens, 96U);
}

TEST(EngineLoad, ADefaultContextEndsWherePositionsDo) {
  const ModelFile file(TinyLlama{.layers = 1, .context = 1U << 22});
  RecordingBackend backend;
  const auto context_of = [&](const EngineOptions& options) {
    const auto predicted = Engine::predict(file.path(), options, backend);
    return predicted ? predicted->context_tokens : 0;
  };
  EXPECT_EQ(context_of({}), 1U << 20);
  EXPECT_EQ(context_of({.context_tokens = 1U << 21}), 1U << 21);  // to be refused by a device
}

TEST(EngineLoad, RefusesImpossibleOptions) {
  const ModelFile file;
  for (const EngineOptions& options :
       {EngineOptions{.slots = 0}, EngineOptions{.prefill_chunk = 0}, EngineOptions{.context_tokens = 193},
        EngineOptions{.kv_dtype = plan::DType::kQ4_0}}) {
    RecordingBackend backend;
    const auto engine = Engine::load(file.path(), options, backend);
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().code, ErrorCode::kInvalidParams) << engine.error().message;
  }
}

TEST(EngineLoad, StatesTheFacts) {
  const Loaded loaded({.context_tokens = 100, .slots = 2});
  const EngineFacts& facts = loaded.engine->facts();
  EXPECT_EQ(facts.architecture, "llama");
  EXPECT_EQ(facts.vocab, 40U);
  EXPECT_EQ(facts.context_tokens, 100U);
  EXPECT_EQ(facts.context_tokens_model, 192U);
  EXPECT_EQ(facts.weight_type, "F32");
  EXPECT_EQ(facts.kv_dtype, "f16");
  EXPECT_EQ(facts.plan_hash.size(), 32U);
  EXPECT_EQ(facts.device_class, "recording");
  EXPECT_EQ(facts.file_bytes, std::filesystem::file_size(loaded.file.path()));
}

// Launches per step are a property of the plan: never of the slots, the rows or the context.
TEST(EngineStep, LaunchesDoNotDependOnTheBatch) {
  Loaded loaded({.slots = 3}, {.layers = 4});
  const auto tokens = many(20);
  const auto launches_of = [&](std::vector<SlotRows> requests) {
    loaded.backend.launches.clear();
    EXPECT_TRUE(loaded.engine->step(requests));
    EXPECT_EQ(loaded.engine->counters().total, loaded.backend.launches.size());
    return loaded.backend.launches.size();
  };
  const std::span<const TokenId> all(tokens);
  EXPECT_EQ(launches_of({{0, all.first(1)}}), 6U * 4 + 3);
  EXPECT_EQ(launches_of({{0, all}, {1, all.first(7)}, {2, all.first(1)}}), 6U * 4 + 3);
  EXPECT_EQ(loaded.engine->counters().per_opcode[static_cast<std::size_t>(Opcode::kMultiheadAttention)], 4U);
  for (const testing::Launch& launch : loaded.backend.launches) {
    EXPECT_EQ(launch.rows, 28U);
    EXPECT_EQ(launch.batch_size, 3U);
  }
}

TEST(EngineStep, UsesThreeActivationBuffersAndTheLogits) {
  Loaded loaded({}, {.layers = 6});
  ASSERT_TRUE(loaded.engine->prefill(0, many(4)));
  std::set<const void*> outputs;
  for (const testing::Launch& launch : loaded.backend.launches) outputs.insert(launch.output);
  EXPECT_EQ(outputs.size(), 4U);
}

TEST(EngineStep, RaggedRowsComeBackInOrder) {
  Loaded loaded({.slots = 3, .output_rows_max = 8});
  ASSERT_TRUE(loaded.engine->prefill(1, ids({9, 9})));
  const auto a = ids({1, 2, 3}), b = ids({4}), c = ids({5, 6});
  const std::vector<SlotRows> requests{{0, a, RowsWanted::kAll}, {1, b, RowsWanted::kLast}, {2, c, RowsWanted::kNone}};
  const auto output = loaded.engine->step(requests);
  ASSERT_TRUE(output) << output.error().message;
  ASSERT_EQ(output->rows(), 4U);
  const float expected[4][2] = {{1, 0}, {1002, 0}, {2003, 0}, {2004, 1}};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(output->row(i)[0], expected[i][0]);
    EXPECT_EQ(output->row(i)[1], expected[i][1]);
  }
  EXPECT_EQ(loaded.engine->length(0), 3U);
  EXPECT_EQ(loaded.engine->length(1), 3U);
  EXPECT_EQ(loaded.engine->length(2), 2U);
}

TEST(EngineStep, PrefillIsCutIntoChunks) {
  Loaded loaded({.prefill_chunk = 7});
  const auto logits = loaded.engine->prefill(0, many(24));
  ASSERT_TRUE(logits);
  EXPECT_EQ((*logits)[0], 23 * 1000 + 23);
  std::vector<std::uint32_t> rows;
  for (const testing::Launch& launch : loaded.backend.launches) {
    if (launch.opcode == Opcode::kEmbedding) rows.push_back(launch.rows);
  }
  EXPECT_EQ(rows, (std::vector<std::uint32_t>{7, 7, 7, 3}));
}

TEST(EngineStep, ScoreHandsOutEveryRow) {
  for (std::uint32_t outputs : {1U, 3U, 64U}) {
    Loaded loaded({.prefill_chunk = 8, .output_rows_max = outputs});
    std::vector<float> seen;
    ASSERT_TRUE(loaded.engine->score(0, many(20), [&](std::size_t row, std::span<const float> logits) {
      EXPECT_EQ(row, seen.size());
      seen.push_back(logits[0]);
    }));
    ASSERT_EQ(seen.size(), 20U);
    for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(seen[i], static_cast<float>(i * 1000 + i % 40));
  }
}

TEST(EngineStep, ContextEndsWithACodeAndLeavesTheSlot) {
  Loaded loaded({.context_tokens = 10, .prefill_chunk = 4});
  ASSERT_TRUE(loaded.engine->prefill(0, many(8)));
  const auto too_long = loaded.engine->prefill(0, many(3));
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, ErrorCode::kContextExhausted);
  EXPECT_EQ(loaded.engine->length(0), 8U);
  EXPECT_TRUE(loaded.engine->prefill(0, many(2)));
  EXPECT_EQ(loaded.engine->decode(0, TokenId{0}).error().code, ErrorCode::kContextExhausted);
  ASSERT_TRUE(loaded.engine->reset(0));
  EXPECT_EQ(loaded.engine->length(0), 0U);
  EXPECT_TRUE(loaded.engine->prefill(0, many(10)));
}

TEST(EngineStep, RefusesIdsOutsideTheVocabularyAndOversizedSteps) {
  Loaded loaded({.slots = 2, .prefill_chunk = 4});
  EXPECT_EQ(loaded.engine->prefill(0, ids({1, 2, 3, 4, 5, 40})).error().code, ErrorCode::kInvalidParams);
  EXPECT_EQ(loaded.engine->length(0), 0U);
  const auto tokens = many(3);
  const std::vector<SlotRows> requests{{0, tokens}, {1, tokens}};
  EXPECT_EQ(loaded.engine->step(requests).error().code, ErrorCode::kInvalidBatchSize);
  const SlotRows every_row{0, tokens, RowsWanted::kAll};
  EXPECT_EQ(loaded.engine->step({&every_row, 1}).error().code, ErrorCode::kInvalidBatchSize);
  EXPECT_EQ(loaded.engine->step({}).error().code, ErrorCode::kInvalidBatchSize);
}

TEST(EngineStep, AFailedStepLeavesTheSlot) {
  Loaded loaded({});
  ASSERT_TRUE(loaded.engine->prefill(0, many(3)));
  loaded.backend.failing = Opcode::kSwiglu;
  const auto failed = loaded.engine->decode(0, TokenId{1});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kCudaError);
  EXPECT_EQ(loaded.engine->length(0), 3U);
  EXPECT_EQ(loaded.backend.launches.back().opcode, Opcode::kSwiglu);  // nothing ran behind it
}

TEST(EngineStep, AllocatesNothing) {
  Loaded loaded({.slots = 2, .prefill_chunk = 8, .output_rows_max = 4});
  const auto tokens = many(20);
  const std::vector<SlotRows> requests{{0, std::span(tokens).first(3), RowsWanted::kAll},
                                       {1, std::span(tokens).first(1)}};
  const auto before = base::testing::allocations_count();
  const bool fine = loaded.engine->prefill(0, tokens).has_value() && loaded.engine->decode(0, TokenId{1}).has_value() &&
                    loaded.engine->step(requests).has_value() && loaded.engine->reset(0).has_value();
  EXPECT_EQ(base::testing::allocations_count(), before);
  EXPECT_TRUE(fine);
  const auto probe = std::make_unique<int>(1);
  EXPECT_GT(base::testing::allocations_count(), before);  // the counter counts
}

}  // namespace
}  // namespace llorch::engine::inference
