// A model that takes images, in both formats, against a float64 reference of the same stored weights and pixels, and against
// itself: how a prompt is cut, what else a slot held and which frames share a step never change a bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/inference/continuous_batch.h"
#include "engine/io/model_files.h"
#include "engine/plan/validate.h"
#include "golden_support.h"

namespace llorch::golden {
namespace {

using base::ErrorCode;
using engine::inference::Engine;
using engine::inference::EngineOptions;
using engine::inference::vision::Image;
using engine::plan::DType;
using engine::plan::VisionGrid;

constexpr base::TokenId kImageToken{5};

struct ImageFixture {
  const char* family;
  Format format;
};

// An engine on the fixture, with or without the tower.
struct World {
  World(const ImageFixture& fixture, const EngineOptions& wanted, std::uint32_t threads = 1,
        const std::string& isa = {}) {
    EngineOptions options = wanted;
    options.kv_dtype = DType::kF32;
    options.output_rows_max = options.prefill_chunk;
    if (fixture.format == Format::kGguf) {
      options.projector = family_directory(fixture.family) / "mmproj.gguf";
      options.image_token = kImageToken;  // the fixture's vocabulary is made up
    }
    backend = engine::compute::cpu::make_cpu_backend(
                  {.threads_count = threads, .memory_budget_bytes = 1ULL << 30, .isa = isa})
                  .value();
    auto loaded = Engine::load(*family_model(fixture.family, fixture.format), options, *backend);
    EXPECT_TRUE(loaded) << loaded.error().message;
    engine = *std::move(loaded);
  }
  std::vector<float> score(std::uint32_t slot, std::span<const base::TokenId> tokens) {
    std::vector<float> logits;
    const auto done = engine->score(slot, tokens, [&](std::size_t, std::span<const float> row) {
      logits.insert(logits.end(), row.begin(), row.end());
    });
    EXPECT_TRUE(done) << done.error().message;
    return logits;
  }

  std::unique_ptr<engine::plan::Backend> backend;
  std::unique_ptr<Engine> engine;
};

class Vision : public testing::TestWithParam<ImageFixture> {
 protected:
  std::vector<float> run(const EngineOptions& options, std::uint32_t threads = 1, const std::string& isa = {}) const {
    World world(GetParam(), options, threads, isa);
    const auto encoded = world.engine->encode_images(0, pixels_.images, pixels_.patch_rows);
    EXPECT_TRUE(encoded) << encoded.error().message;
    return world.score(0, golden_.tokens);
  }

  Golden golden_ = read_golden(family_directory(GetParam().family) / "golden.bin");
  Pixels pixels_ = read_pixels(family_directory(GetParam().family) / "pixels.bin", golden_.tokens.size());
};

// The references' own f32 runs differ by 4e-7 of the largest logit.
TEST_P(Vision, AgreesToRounding) {
  const std::vector<float> logits = run({.prefill_chunk = 128});
  const double error = relative_error(logits, golden_.logits);
  RecordProperty("relative_error", fmt::format("{:.3g}", error));
  EXPECT_LE(error, 5e-5);
  for (std::size_t i = 0; i < golden_.tokens.size(); ++i) {
    const auto row = std::span(logits).subspan(i * golden_.vocab, golden_.vocab);
    EXPECT_EQ(argmax(row), argmax(golden_.row(i))) << "after token " << i;
  }
}

// The images count: without them the logits are others, from the first image token on and not before.
TEST_P(Vision, ImagesChangeWhatFollowsThem) {
  const std::vector<float> with = run({.prefill_chunk = 128});
  World world(GetParam(), {.prefill_chunk = 128});
  const std::vector<float> without = world.score(0, golden_.tokens);
  const auto first = std::ranges::find(golden_.tokens, kImageToken) - golden_.tokens.begin();
  const std::size_t before = static_cast<std::size_t>(first) * golden_.vocab;
  EXPECT_TRUE(same_bits(std::span(with).first(before), std::span(without).first(before)));
  EXPECT_GT(relative_error(std::span(with).subspan(before), std::span(without).subspan(before)), 1e-2);
}

// SYS-2.3.2, SYS-2.3.4
TEST_P(Vision, OneSetOfBits) {
  const std::vector<float> reference = run({.prefill_chunk = 128});
  for (const std::uint32_t chunk : {1U, 2U, 7U, 12U, 64U})
    EXPECT_TRUE(same_bits(run({.prefill_chunk = chunk}), reference)) << "chunks of " << chunk;
  EXPECT_TRUE(same_bits(run({.prefill_chunk = 128}, 2), reference)) << "2 threads";
  // The larger frame has 24 patches: one frame per step, then both.
  EXPECT_TRUE(same_bits(run({.prefill_chunk = 128, .frame_patches_max = 24}), reference));
  EXPECT_TRUE(same_bits(run({.prefill_chunk = 128, .frame_patches_max = 32, .image_rows_max = 8}), reference));
  for (const std::string& isa : processor_isas()) {
    EXPECT_TRUE(same_bits(run({.prefill_chunk = 9}, 1, isa), reference)) << isa;
  }
}

// A slot with images beside one with text only and one with the same images, cut differently, in shared steps.
TEST_P(Vision, NeighboursDoNotMatter) {
  const std::vector<float> reference = run({.prefill_chunk = 128});
  World world(GetParam(), {.slots = 3, .prefill_chunk = 128});
  for (const std::uint32_t slot : {2U, 0U})
    ASSERT_TRUE(world.engine->encode_images(slot, pixels_.images, pixels_.patch_rows));
  const std::span<const base::TokenId> tokens = golden_.tokens;
  constexpr std::size_t kHead = 12;  // amid the first image
  ASSERT_TRUE(world.engine->prefill(0, tokens.first(kHead)));
  using engine::inference::RowsWanted;
  const std::vector<engine::inference::SlotRows> step{{0, tokens.subspan(kHead, 20), RowsWanted::kLast},
                                                      {1, tokens.first(15), RowsWanted::kNone},
                                                      {2, tokens.first(40), RowsWanted::kLast}};
  const auto output = world.engine->step(step);
  ASSERT_TRUE(output) << output.error().message;
  const auto row = [&](std::size_t i) { return std::span(reference).subspan(i * golden_.vocab, golden_.vocab); };
  EXPECT_TRUE(same_bits(output->row(0), row(kHead + 19)));
  EXPECT_TRUE(same_bits(output->row(1), row(39)));
}

// A slot is as good as new after a reset, and its images end there.
TEST_P(Vision, ARecycledSlot) {
  World world(GetParam(), {.prefill_chunk = 16});
  const std::vector<float> text_first = world.score(0, golden_.tokens);
  ASSERT_TRUE(world.engine->reset(0));
  ASSERT_TRUE(world.engine->encode_images(0, pixels_.images, pixels_.patch_rows));
  EXPECT_TRUE(same_bits(world.score(0, golden_.tokens), run({.prefill_chunk = 128})));
  ASSERT_TRUE(world.engine->reset(0));
  EXPECT_TRUE(same_bits(world.score(0, golden_.tokens), text_first));
}

// Images twice and a text, twelve tokens each: alone, and where each gives way to the others again and again.
TEST_P(Vision, GivingWayDoesNotMatter) {
  using namespace engine::inference;
  constexpr std::size_t kSequences = 3, kTokens = 12;
  struct Answers {
    std::vector<std::vector<float>> logits{kSequences};  // of each sequence, all its draws one after another
    std::uint64_t preemptions = 0;
  };
  const auto answers = [&](std::uint32_t slots, std::uint32_t chunk, bool giving_way) {
    World world(GetParam(), {.slots = slots, .prefill_chunk = chunk});
    ContinuousBatch batch(*world.engine, {});
    Answers out;
    std::vector<std::size_t> drawn(kSequences);
    for (std::uint32_t i = 0; i < kSequences; ++i) {
      SequenceRequest request{.id = SequenceId{i}, .prompt = golden_.tokens, .tokens_max = 128};
      if (i < 2) request.images = SequenceImages{pixels_.images, pixels_.patch_rows};
      EXPECT_TRUE(batch.add(request));
    }
    const auto draw = [&](SequenceId id, std::span<const float> logits) {
      const auto i = static_cast<std::size_t>(id);
      out.logits[i].insert(out.logits[i].end(), logits.begin(), logits.end());
      if (++drawn[i] == kTokens) {
        batch.remove(id);
      } else {
        batch.append(id, base::TokenId{static_cast<std::uint32_t>(argmax(logits))});
      }
    };
    for (std::int64_t step = 0; step < 1000 && std::ranges::any_of(drawn, [&](std::size_t n) { return n < kTokens; });
         ++step) {
      for (std::uint32_t i = 0; giving_way && i < kSequences; ++i) {
        if (batch.knows(SequenceId{i})) batch.set_paused(SequenceId{i}, step / 3 % kSequences == i);
      }
      EXPECT_TRUE(batch.step(step, draw));
    }
    out.preemptions = batch.usage().counts.preemptions;
    return out;
  };
  const Answers alone = answers(1, 128, false), giving_way = answers(2, 16, true);
  EXPECT_GE(giving_way.preemptions, 3U);
  for (std::size_t i = 0; i < kSequences; ++i) {
    EXPECT_EQ(alone.logits[i].size(), kTokens * golden_.vocab) << i;
    EXPECT_TRUE(same_bits(giving_way.logits[i], alone.logits[i])) << i;
  }
  EXPECT_TRUE(same_bits(alone.logits[0], alone.logits[1]));
  EXPECT_FALSE(same_bits(alone.logits[0], alone.logits[2]));
}

// Images that cannot be encoded when their slot is begun fail the step for their own sequence; another one of the step is computed
// again.
TEST_P(Vision, AStartThatFailsIsOneSequences) {
  using namespace engine::inference;
  const std::vector<float> reference = [&] {
    World world(GetParam(), {.prefill_chunk = 128});
    return world.score(0, golden_.tokens);
  }();
  World world(GetParam(), {.slots = 2, .prefill_chunk = 64});
  ContinuousBatch batch(*world.engine, {});
  constexpr SequenceId kText{1}, kImages{2};
  std::vector<Image> images = pixels_.images;
  ASSERT_TRUE(batch.add({.id = kText, .prompt = golden_.tokens, .tokens_max = 128}));
  ASSERT_TRUE(batch.add({.id = kImages,
                         .prompt = golden_.tokens,
                         .tokens_max = 128,
                         .images = SequenceImages{images, pixels_.patch_rows}}));
  images[0].frames += 1;  // more than there are pixels of
  std::vector<float> logits;
  const auto sink = [&](SequenceId id, std::span<const float> row) {
    EXPECT_EQ(id, kText);
    logits.assign(row.begin(), row.end());
    batch.remove(id);
  };
  std::uint32_t failures = 0;
  for (std::int64_t step = 0; step < 20 && batch.knows(kText); ++step) {
    if (batch.step(step, sink)) continue;
    ++failures;
    ASSERT_EQ(std::vector<SequenceId>(batch.last_step().begin(), batch.last_step().end()), std::vector{kImages});
    batch.remove(kImages);
  }
  EXPECT_EQ(failures, 1U);
  EXPECT_TRUE(same_bits(logits, std::span(reference).last(golden_.vocab)));
}

TEST_P(Vision, RowsStandWhereTheLibraryPutsThem) {
  using namespace engine::inference::vision;
  std::vector<VisionGrid> frames;
  for (const Image& image : pixels_.images)
    frames.insert(frames.end(), image.frames, {.height = image.height / 2, .width = image.width / 2});
  RowCursor cursor;
  const std::size_t rows = golden_.tokens.size();
  for (std::size_t i = 0; i < rows; ++i) {
    const RowPosition place = place_row(cursor, golden_.tokens[i] == kImageToken, frames);
    EXPECT_EQ(place.time, pixels_.positions[i]) << i;
    EXPECT_EQ(place.row, pixels_.positions[rows + i]) << i;
    EXPECT_EQ(place.column, pixels_.positions[2 * rows + i]) << i;
  }
}

TEST_P(Vision, ImagesThatCannotBeAreRefused) {
  World world(GetParam(), {.prefill_chunk = 16, .frame_patches_max = 24, .image_rows_max = 8});
  Engine& engine = *world.engine;
  const auto code = [&](const std::vector<Image>& images, std::size_t values) {
    const auto done = engine.encode_images(0, images, std::span(pixels_.patch_rows).first(values));
    return done ? ErrorCode{} : done.error().code;
  };
  EXPECT_EQ(code({}, 0), ErrorCode::kInvalidParams);
  EXPECT_EQ(code({{.height = 3, .width = 4}}, 12 * 96), ErrorCode::kInvalidParams);  // does not merge
  EXPECT_EQ(code({{.height = 0, .width = 4}}, 0), ErrorCode::kInvalidParams);        // empty
  EXPECT_EQ(code({{.height = 4, .width = 8}}, 32 * 96), ErrorCode::kInvalidParams);  // larger than a step
  EXPECT_EQ(code({{.height = 4, .width = 6}}, 23 * 96), ErrorCode::kInvalidParams);  // patches are missing
  const std::vector<Image> many{{.frames = 9, .height = 2, .width = 2}};             // nine rows
  const std::vector<float> nine(9 * 4 * 96);
  EXPECT_EQ(engine.encode_images(0, many, nine).error().code, ErrorCode::kInvalidParams);
  EXPECT_EQ(code(pixels_.images, pixels_.patch_rows.size()), ErrorCode{});
  EXPECT_EQ(code(pixels_.images, pixels_.patch_rows.size()), ErrorCode::kInvalidStateLifecycleAction);  // twice
  ASSERT_TRUE(engine.reset(0));
  ASSERT_TRUE(engine.prefill(0, std::span(golden_.tokens).first(1)));
  EXPECT_EQ(code(pixels_.images, pixels_.patch_rows.size()), ErrorCode::kInvalidParams);  // too late
}

TEST_P(Vision, MemoryIsPredictedToTheByte) {
  World world(GetParam(),
              {.context_tokens = 65, .slots = 3, .prefill_chunk = 7, .frame_patches_max = 100, .image_rows_max = 20});
  EXPECT_EQ(world.engine->memory_plan().total_bytes(), world.backend->memory_used_bytes());
}

INSTANTIATE_TEST_SUITE_P(Golden, Vision,
                         testing::Values(ImageFixture{"qwen3_vl", Format::kGguf},
                                         ImageFixture{"qwen3_vl", Format::kHuggingFace},
                                         ImageFixture{"qwen3_vl_moe", Format::kHuggingFace}),
                         [](const auto& test) {
                           return std::string(test.param.family) +
                                  (test.param.format == Format::kGguf ? "_gguf" : "_hf");
                         });

// What is compiled from the fixture, to be broken.
class Handoff : public testing::Test {
 protected:
  ErrorCode code() const {
    const auto valid = engine::plan::validate_vision_handoff(model_.plans);
    return valid ? ErrorCode{} : valid.error().code;
  }
  engine::io::ModelFiles files_ = engine::io::ModelFiles::open(*family_model("qwen3_vl", Format::kHuggingFace)).value();
  engine::models::CompiledModel model_ = engine::models::compile_model(files_, DType::kF16).value();
};

TEST_F(Handoff, OfThisModelIsWhole) { EXPECT_EQ(code(), ErrorCode{}); }

TEST_F(Handoff, WithoutATowerIsRefused) {
  model_.plans.vision_encode.reset();
  EXPECT_EQ(code(), ErrorCode::kInvalidVisionStageHandoff);
}

TEST_F(Handoff, WithoutAScatterIsRefused) {
  model_.plans.decoder_prefill = model_.plans.decoder_decode;
  EXPECT_EQ(code(), ErrorCode::kInvalidVisionStageHandoff);
}

TEST_F(Handoff, WithAScatterInDecodeIsRefused) {
  model_.plans.decoder_decode = model_.plans.decoder_prefill;
  EXPECT_EQ(code(), ErrorCode::kInvalidVisionStageHandoff);
}

// The engine asks at load, before it takes any memory.
TEST_F(Handoff, IsAskedForAtLoad) {
  model_.plans.vision_encode.reset();
  const auto backend =
      engine::compute::cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1U << 30}).value();
  const auto loaded = Engine::load(std::move(files_), std::move(model_), {}, *backend);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kInvalidVisionStageHandoff);
  EXPECT_EQ(backend->memory_used_bytes(), 0U);
}

// Of a state of another size than the tower writes.
TEST_F(Handoff, WithStatesOfTwoSizesIsRefused) {
  auto other = engine::models::compile_model(files_, DType::kF16, {.image_rows_max = 7, .image_token = {}}).value();
  model_.plans.vision_encode = other.plans.vision_encode;
  EXPECT_EQ(code(), ErrorCode::kInvalidVisionStageHandoff);
}

TEST(Projector, AGgufModelWithoutOneTakesText) {
  const auto backend =
      engine::compute::cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1U << 30}).value();
  const auto engine = Engine::load(*family_model("qwen3_vl", Format::kGguf), {.prefill_chunk = 16}, *backend).value();
  EXPECT_EQ(engine->facts().image_rows_max, 0U);
  const std::vector<Image> images{{.height = 2, .width = 2}};
  EXPECT_EQ(engine->encode_images(0, images, {}).error().code, ErrorCode::kInvalidParams);
  EXPECT_TRUE(engine->prefill(0, std::vector{kImageToken}));
}

TEST(Projector, OfAVocabularyWithoutAnImageTokenIsRefusedUnlessOneIsNamed) {
  auto files = engine::io::ModelFiles::open(*family_model("qwen3_vl", Format::kGguf)).value();
  const auto path = family_directory("qwen3_vl") / "mmproj.gguf";
  ASSERT_TRUE(files.add_projector(engine::io::GgufFile::open(path).value()));
  EXPECT_EQ(engine::models::compile_model(files, DType::kF16).error().code, ErrorCode::kConfigKeyMissing);
  EXPECT_TRUE(engine::models::compile_model(files, DType::kF16, {.image_token = 5}));
}

TEST(Projector, BesideAnotherModelIsRefused) {
  const auto path = family_directory("qwen3_vl") / "mmproj.gguf";
  auto directory = engine::io::ModelFiles::open(*family_model("qwen3_vl", Format::kHuggingFace)).value();
  EXPECT_EQ(directory.add_projector(engine::io::GgufFile::open(path).value()).error().code,
            ErrorCode::kUnsupportedFormatVersion);
  const auto model = *family_model("qwen3", Format::kGguf);
  auto text = engine::io::ModelFiles::open(model).value();
  EXPECT_EQ(text.add_projector(engine::io::GgufFile::open(model).value()).error().code,
            ErrorCode::kUnsupportedFormatVersion);  // no projector
  ASSERT_TRUE(text.add_projector(engine::io::GgufFile::open(path).value()));
  EXPECT_EQ(engine::models::compile_model(text, DType::kF16).error().code, ErrorCode::kUnclaimedWeight);
}

}  // namespace
}  // namespace llorch::golden
