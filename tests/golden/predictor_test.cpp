// The layer that predicts a further token, in both formats, against float64 references of the same stored weights (make_predictor.py);
// and the model, which must not know that it is there.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "engine/compute/cpu/backend.h"
#include "engine/inference/continuous_batch.h"
#include "engine/inference/speculation/model_predictor.h"
#include "golden_support.h"

namespace llorch::golden {
namespace {

using base::TokenId;
using engine::inference::Engine;
using engine::inference::EngineOptions;
using engine::inference::RowsWanted;
using engine::inference::SequenceId;
using engine::inference::SlotRows;
using engine::plan::DType;
namespace scheduling = engine::inference::scheduling;

// Recurrent state goes back to where a step began; a mixture whose pages hold all of its state goes back by any number of rows.
constexpr const char* kFixture = "qwen3_5_predicts";
constexpr const char* kPaged = "glm4_moe_predicts";
struct Case {
  const char* family;
  Format format;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.family; }

struct Loaded {
  std::unique_ptr<engine::plan::Backend> backend =
      engine::compute::cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1ULL << 30}).value();
  std::unique_ptr<Engine> engine;
};

class Predictor : public testing::TestWithParam<Case> {
 protected:
  std::filesystem::path model() const { return *family_model(GetParam().family, GetParam().format); }
  Golden golden(const char* file) const { return read_golden(family_directory(GetParam().family) / file); }
  Loaded load(EngineOptions options) const {
    if (options.kv_dtype == DType::kF16) options.kv_dtype = DType::kF32;
    Loaded loaded;
    auto engine = Engine::load(model(), options, *loaded.backend);
    EXPECT_TRUE(engine) << engine.error().message;
    loaded.engine = std::move(*engine);
    return loaded;
  }
};

std::vector<float> copy(std::span<const float> row) { return {row.begin(), row.end()}; }

// What the layer says behind token i + 1, once the model has computed the i tokens before it in chunks.
std::vector<float> foreseen(Engine& engine, std::span<const TokenId> tokens, std::size_t chunk) {
  std::vector<float> logits;
  for (std::size_t known = 0; known + 1 < tokens.size();) {
    const std::size_t count = std::min(chunk, tokens.size() - 1 - known);
    const SlotRows rows{.slot = 0, .tokens = tokens.subspan(known, count), .wanted = RowsWanted::kNone};
    EXPECT_TRUE(engine.step({&rows, 1}));
    known += count;
    const auto position = static_cast<std::uint32_t>(known);
    if (!engine.can_foresee(0, position)) continue;  // the page behind is not the slot's yet
    const engine::inference::ForeseenRow row{.slot = 0, .position = position, .token = tokens[known]};
    const auto output = engine.foresee({&row, 1});
    EXPECT_TRUE(output) << output.error().message;
    logits.insert(logits.end(), output->row(0).begin(), output->row(0).end());
  }
  return logits;
}

TEST_P(Predictor, AgreesWithTheReferenceToRounding) {
  const Golden model_reference = golden("golden.bin"), reference = golden("predictor.bin");
  const Loaded loaded = load({.proposal_rows_max = 4, .predicts = true});
  const std::vector<float> logits = foreseen(*loaded.engine, model_reference.tokens, 1);
  ASSERT_EQ(logits.size(), reference.logits.size());
  const double error = relative_error(logits, reference.logits);
  RecordProperty("relative_error", std::to_string(error));
  EXPECT_LE(error, 5e-5);
}

// However the model came to its tokens, the layer has taken the same rows.
TEST_P(Predictor, ChunksDoNotMatter) {
  const Golden reference = golden("golden.bin");
  const auto tokens = std::span<const TokenId>(reference.tokens).first(40);
  const std::vector<float> one = foreseen(*load({.predicts = true}).engine, tokens, 1);
  const std::vector<float> all = foreseen(*load({.predicts = true}).engine, tokens, 64);
  ASSERT_EQ(all.size(), reference.vocab);
  EXPECT_TRUE(same_bits(all, std::span(one).last(reference.vocab)));
}

// From the second token on it reads what it made itself of the one before.
TEST_P(Predictor, WritesAheadAsTheReferenceDoes) {
  const Golden model_reference = golden("golden.bin"), reference = golden("predictor_ahead.bin");
  const Loaded loaded = load({.predicts = true});
  const auto tokens = std::span<const TokenId>(model_reference.tokens).first(40);
  const SlotRows rows{.slot = 0, .tokens = tokens.first(39), .wanted = RowsWanted::kNone};
  ASSERT_TRUE(loaded.engine->step({&rows, 1}));
  engine::inference::ForeseenRow row{.slot = 0, .position = 39, .token = tokens.back()};
  for (std::size_t i = 0; i < reference.tokens.size(); ++i) {
    ASSERT_TRUE(loaded.engine->can_foresee(0, row.position));
    const auto output = loaded.engine->foresee({&row, 1});
    ASSERT_TRUE(output) << output.error().message;
    EXPECT_LE(relative_error(output->row(0), reference.row(i)), 5e-5) << "token " << i;
    EXPECT_EQ(argmax(output->row(0)), index(reference.tokens[i]));
    row.token = reference.tokens[i];
    ++row.position;
  }
}

TEST_P(Predictor, ChangesNoBitOfTheModel) {
  const Golden reference = golden("golden.bin");
  const Loaded with = load({.predicts = true}), without = load({});
  EXPECT_EQ(with.engine->facts().plan_hash, without.engine->facts().plan_hash);
  const auto leaves_it = [](const std::string& note) {
    return note.find("predict further tokens are not used") != note.npos;
  };
  EXPECT_TRUE(std::ranges::any_of(without.engine->notes(), leaves_it));
  EXPECT_TRUE(std::ranges::none_of(with.engine->notes(), leaves_it));
  std::vector<std::vector<float>> expected;
  const auto keep = [&](std::size_t, std::span<const float> row) { expected.push_back(copy(row)); };
  ASSERT_TRUE(without.engine->score(0, reference.tokens, keep));
  for (std::size_t i = 0; i < reference.tokens.size(); ++i) {
    const auto logits = with.engine->decode(0, reference.tokens[i]);
    ASSERT_TRUE(logits);
    EXPECT_TRUE(same_bits(*logits, expected[i])) << "after token " << i;
    if (i + 1 == reference.tokens.size()) break;
    const engine::inference::ForeseenRow row{
        .slot = 0, .position = static_cast<std::uint32_t>(i + 1), .token = TokenId{7}};  // whatever it is told
    ASSERT_TRUE(with.engine->foresee({&row, 1}));
  }
}

TEST_P(Predictor, MemoryIsPredictedToTheByte) {
  const Loaded without = load({.context_tokens = 200, .slots = 3});
  for (const EngineOptions& options : {EngineOptions{.context_tokens = 200, .kv_dtype = DType::kF32, .predicts = true},
                                       {.context_tokens = 200,
                                       .slots = 3,
                                       .kv_dtype = DType::kF32,
                                       .prefill_chunk = 7,
                                       .proposal_rows_max = 4,
                                       .predicts = true}}) {
    const Loaded loaded = load(options);
    EXPECT_EQ(loaded.engine->memory_plan().total_bytes(), loaded.backend->memory_used_bytes());
    const auto planner =
        engine::compute::cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1ULL << 30}).value();
    const auto predicted = Engine::predict(model(), options, *planner);
    ASSERT_TRUE(predicted);
    EXPECT_EQ(predicted->total_bytes(), loaded.backend->memory_used_bytes());
    EXPECT_GT(predicted->weights_bytes, without.engine->memory_plan().weights_bytes);
  }
}

// Greedy texts of several jobs at once: the same tokens with and without, in fewer steps.
TEST_P(Predictor, ATextIsTheSameInFewerSteps) {
  struct Text {
    std::vector<TokenId> tokens;
    scheduling::ProposalCounts proposals;
  };
  constexpr std::uint32_t kLength = 150;
  std::uint64_t steps = 0;
  const auto texts_of = [&](bool predicts) {
    const Loaded loaded = load({.slots = 3, .prefill_chunk = 32, .proposal_rows_max = 12, .predicts = predicts});
    const auto greedy = [](SequenceId, std::span<const TokenId>, std::span<const float> logits) {
      return TokenId{static_cast<std::uint32_t>(argmax(logits))};
    };
    std::optional<engine::inference::speculation::ModelPredictor> source;
    engine::inference::ContinuousBatchOptions options;
    if (predicts) {
      source.emplace(*loaded.engine, greedy);
      options.speculation = {.source = &*source, .proposals_max = 4, .always = true};
    }
    engine::inference::ContinuousBatch batch(*loaded.engine, options);
    const std::vector<TokenId> tokens = golden("golden.bin").tokens;
    std::vector<Text> texts(3);
    for (std::uint64_t i = 0; i < 3; ++i) {
      const auto prompt = std::span(tokens).subspan(7 * i, 5 + 9 * i);
      texts[i].tokens.assign(prompt.begin(), prompt.end());
      EXPECT_TRUE(batch.add({.id = SequenceId{i}, .prompt = prompt, .tokens_max = kLength}));
    }
    std::size_t running = 3;
    for (steps = 0; running > 0 && steps < 1000; ++steps) {
      EXPECT_TRUE(batch.step(0, [&](SequenceId id, std::span<const float> logits) {
        Text& text = texts[static_cast<std::size_t>(id)];
        text.tokens.push_back(greedy(id, {}, logits));
        text.proposals = batch.proposals(id);
        if (text.tokens.size() < kLength) return batch.append(id, text.tokens.back());
        batch.remove(id);
        --running;
      }));
    }
    return texts;
  };
  const std::vector<Text> plain = texts_of(false);
  const std::uint64_t plain_steps = steps;
  const std::vector<Text> ahead = texts_of(true);
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(ahead[i].tokens, plain[i].tokens) << i;
    EXPECT_GT(ahead[i].proposals.accepted, 50U) << i;
    wrong += ahead[i].proposals.proposed - ahead[i].proposals.accepted;
  }
  EXPECT_LT(steps, plain_steps * 3 / 5);
  EXPECT_GT(wrong, 10U) << "nothing was taken back";
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Predictor,
    testing::Values(Case{kFixture, Format::kGguf}, Case{kFixture, Format::kHuggingFace}, Case{kPaged, Format::kGguf},
                    Case{kPaged, Format::kHuggingFace}, Case{"mimo_v2_predicts", Format::kHuggingFace},
                    Case{"deepseek_v3_predicts", Format::kGguf}, Case{"deepseek_v3_predicts", Format::kHuggingFace},
                    Case{"deepseek_v32_predicts", Format::kGguf}, Case{"deepseek_v32_predicts", Format::kHuggingFace}),
    [](const auto& test) {
      return std::string(test.param.family) + (test.param.format == Format::kGguf ? "_gguf" : "_hf");
    });

base::Error refusal(const std::filesystem::path& model, std::size_t devices_count = 1) {
  std::vector<std::unique_ptr<engine::plan::Backend>> backends;
  engine::inference::parallel::Devices devices;
  for (std::size_t i = 0; i < devices_count; ++i) {
    backends.push_back(
        engine::compute::cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1ULL << 30}).value());
    devices.backends.push_back(backends.back().get());
  }
  const auto predicted = Engine::predict(model, {.predicts = true}, devices);
  EXPECT_FALSE(predicted);
  return predicted ? base::Error{} : predicted.error();
}

TEST(PredictorRefusals, AFamilyThatRunsNone) {
  const base::Error error = refusal(*family_model("llama3", Format::kGguf));
  EXPECT_EQ(error.code, base::ErrorCode::kModelIncompatible);
  EXPECT_NE(error.message.find("are not run of architecture llama"), std::string::npos) << error.message;
}

TEST(PredictorRefusals, SeveralDevices) {
  const base::Error error = refusal(*family_model(kFixture, Format::kGguf), 2);
  EXPECT_EQ(error.code, base::ErrorCode::kModelIncompatible);
  EXPECT_NE(error.message.find("runs on one device"), std::string::npos) << error.message;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {(std::istreambuf_iterator<char>(in)), {}};
}
void replace_all(std::string& text, std::string_view from, std::string_view to) {
  ASSERT_NE(text.find(from), std::string::npos) << from;
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}
// Of a directory with these two files.
base::Error refusal(const std::string& config, const std::string& tensors) {
  const auto directory = std::filesystem::path(testing::TempDir()) / ("llorch-predictor-" + std::to_string(::getpid()));
  std::filesystem::remove_all(directory);
  std::filesystem::create_directory(directory);
  std::ofstream(directory / "config.json", std::ios::binary) << config;
  std::ofstream(directory / "model.safetensors", std::ios::binary) << tensors;
  base::Error error = refusal(directory);
  std::filesystem::remove_all(directory);
  return error;
}

// Of MiMo's three layers the one that has a window: nothing is kept in pages that the layer's rows could lie in.
TEST(PredictorRefusals, AModelOfWindowsAlone) {
  const auto directory = family_directory("mimo_v2_predicts");
  std::string config = bytes_of(directory / "config.json"), tensors = bytes_of(directory / "model.safetensors");
  replace_all(tensors, "model.layers.0.", "model.layers.9.");
  replace_all(tensors, "model.layers.1.", "model.layers.0.");
  replace_all(config, "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 1");
  replace_all(config, "\"full_attention\",\n  \"sliding_attention\",\n  \"full_attention\"", "\"sliding_attention\"");
  replace_all(config, "\"dense\",\n  \"sparse\",\n  \"sparse\"", "\"sparse\"");
  const base::Error error = refusal(config, tensors);
  EXPECT_EQ(error.code, base::ErrorCode::kModelIncompatible) << error.message;
  EXPECT_NE(error.message.find("no layer of the model keeps all positions"), std::string::npos) << error.message;
}

// The same checkpoint under names that are nobody's: without the layer, and with half of it.
TEST(PredictorRefusals, FilesWithoutTheLayerOrWithHalfOfIt) {
  const auto without = [](std::string_view name, std::string_view changed) {
    ASSERT_EQ(name.size(), changed.size());
    std::string tensors = bytes_of(family_directory(kFixture) / "model.safetensors");
    replace_all(tensors, name, changed);
    const base::Error error = refusal(bytes_of(family_directory(kFixture) / "config.json"), tensors);
    if (name.find("fc.weight") != name.npos) {
      EXPECT_EQ(error.code, base::ErrorCode::kModelIncompatible) << error.message;
      EXPECT_NE(error.message.find("no layer of it predicts further tokens"), std::string::npos) << error.message;
    } else {
      EXPECT_EQ(error.code, base::ErrorCode::kMissingWeight) << error.message;
      EXPECT_NE(error.message.find(name), std::string::npos) << error.message;
    }
  };
  without("mtp.fc.weight", "mtp.fx.weight");
  without("mtp.layers.0.self_attn.q_proj.weight", "mtp.layers.1.self_attn.q_proj.weight");
}

}  // namespace
}  // namespace llorch::golden
