// Models as new GGUF files: every family's directory against the file the field's own converter makes of it, every type, and
// made-up models of every architecture.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "base/file.h"
#include "engine/models/gguf_export/model_keys.h"
#include "engine/models/gguf_write/write_gguf.h"
#include "engine/models/registry.h"
#include "engine/models/synth/synth_model.h"
#include "golden_support.h"

namespace llorch::golden {
namespace {

using engine::plan::DType;
using namespace engine::models;
namespace io = engine::io;

// A file of this test, gone at its end.
class Scratch {
 public:
  explicit Scratch(const std::string& name)
      : path_(std::filesystem::path(testing::TempDir()) / fmt::format("llorch-export-{}-{}.gguf", ::getpid(), name)) {}
  ~Scratch() { std::filesystem::remove(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::string bytes() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  std::filesystem::path path_;
};

base::Result<> write_as(const ExportModel& model, const TypeRequest& request, const std::filesystem::path& out,
                        unsigned threads = 1) {
  const std::vector<TensorType> types = TRY(choose_types(model, request));
  TRY(write_gguf(model, types, request.type, out, {.threads = threads}));
  return {};
}
base::Result<> quantize(const std::filesystem::path& in, const TypeRequest& request, const std::filesystem::path& out) {
  const io::ModelFiles files = TRY(io::ModelFiles::open(in));
  return write_as(TRY(export_model(files)), request, out);
}
void must(const base::Result<>& result) {
  if (!result) FAIL() << result.error().message;
}

// Mean KL of the rows' distributions, in nats.
double mean_kl(std::span<const float> reference, std::span<const float> got, std::size_t vocab) {
  const auto log_sum = [&](std::span<const float> row) {
    const double top = *std::ranges::max_element(row);
    double sum = 0;
    for (const float x : row) sum += std::exp(x - top);
    return top + std::log(sum);
  };
  double total = 0;
  for (std::size_t at = 0; at < reference.size(); at += vocab) {
    const auto p = reference.subspan(at, vocab), q = got.subspan(at, vocab);
    const double p_sum = log_sum(p), q_sum = log_sum(q);
    for (std::size_t i = 0; i < vocab; ++i) total += std::exp(p[i] - p_sum) * ((p[i] - p_sum) - (q[i] - q_sum));
  }
  return total / static_cast<double>(reference.size() / vocab);
}

class ExportedDirectory : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!family_model(GetParam(), Format::kHuggingFace)) GTEST_SKIP() << "no fixture of " << GetParam();
  }
  std::filesystem::path directory() const { return *family_model(GetParam(), Format::kHuggingFace); }
  std::string family() const { return GetParam(); }
};

// Rotated rows change places (the order of a score's sum), or a factor is stored as another.
bool keeps_bits(const std::string& family) {
  static const std::set<std::string> kMoved{"granite_hybrid", "arcee",      "internlm2",       "ministral3_far",
                                            "granite_swa",    "granitemoe", "granitemoeshared"};
  return !(family.starts_with("llama") || family.starts_with("deepseek") || kMoved.contains(family));
}

TEST_P(ExportedDirectory, ComputesTheSame) {
  const Scratch out(family());
  must(quantize(directory(), {.type = DType::kBF16}, out.path()));
  const Golden golden = read_golden(family_directory(family()) / "golden.bin");
  const std::vector<float> logits = logits_of(out.path(), golden.tokens, {});
  EXPECT_LE(relative_error(logits, golden.logits), 5e-5);
  const bool same = same_bits(logits, logits_of(directory(), golden.tokens, {}));
  EXPECT_TRUE(same || !keeps_bits(family()));
}

void expect_same_values(const io::FileTensor& got, const io::FileTensor& expected) {
  ASSERT_EQ(io::describe(got), io::describe(expected)) << got.name;
  if (got.type != io::StoredType::kF32) {
    EXPECT_EQ(got.data.read_all().value(), expected.data.read_all().value()) << got.name;
    return;
  }
  for (std::size_t i = 0; i < got.elements_count(); ++i) {
    float a = 0, b = 0;
    ASSERT_TRUE(got.data.read(i * sizeof a, std::as_writable_bytes(std::span(&a, 1))));
    ASSERT_TRUE(expected.data.read(i * sizeof b, std::as_writable_bytes(std::span(&b, 1))));
    // Divisors of a rotation and exponentials come from other libraries there.
    ASSERT_NEAR(a, b, 2e-7 * std::abs(b)) << got.name << " element " << i;
  }
}

// Every tensor under the same name, in the same shape and type, with the same values: also the order of rows.
TEST_P(ExportedDirectory, HoldsTheTensorsOfTheFieldsConverter) {
  const auto reference = family_model(family(), Format::kGguf);
  if (!reference) GTEST_SKIP() << "this fixture has no GGUF";
  const Scratch out(family());
  must(quantize(directory(), {.type = DType::kBF16}, out.path()));
  const io::ModelFiles got = io::ModelFiles::open(out.path()).value();
  const io::ModelFiles expected = io::ModelFiles::open(*reference).value();
  for (const io::FileTensor& tensor : expected.tensors()) {
    const io::FileTensor* ours = got.find_tensor(tensor.name);
    ASSERT_NE(ours, nullptr) << tensor.name;
    expect_same_values(*ours, tensor);
  }
  EXPECT_EQ(got.tensors().size(), expected.tensors().size());
}

// Keys of which converters write something else than what the model's configuration says: a context for models that count
// no positions, the width of dense layers that are not there.
const std::set<std::string> kOtherwise{"granitehybrid.context_length", "qwen3moe.feed_forward_length",
                                       "mamba2.feed_forward_length", "qwen2moe.feed_forward_length"};

TEST_P(ExportedDirectory, SaysWhatTheFieldsConverterSays) {
  const auto reference = family_model(family(), Format::kGguf);
  if (!reference) GTEST_SKIP() << "this fixture has no GGUF";
  const Scratch out(family());
  must(quantize(directory(), {.type = DType::kBF16}, out.path()));
  const io::GgufFile got = io::GgufFile::open(out.path()).value();
  const io::GgufFile expected = io::GgufFile::open(*reference).value();
  std::size_t compared = 0;
  for (const io::GgufEntry& entry : expected.metadata()) {
    const io::GgufValue* ours = got.find(entry.key);
    if (ours == nullptr || entry.key == "general.name" || kOtherwise.contains(std::string(entry.key))) continue;
    ++compared;
    if (const float* wanted = std::get_if<float>(&entry.value)) {
      EXPECT_NEAR(std::get<float>(*ours), *wanted, 1e-6 * std::abs(*wanted)) << entry.key;
    } else {
      EXPECT_EQ(io::to_text(*ours), io::to_text(entry.value)) << entry.key;
    }
  }
  EXPECT_GE(compared, family() == "gpt2" ? 7U : 9U);  // nothing rotates, keys have as many heads
}

INSTANTIATE_TEST_SUITE_P(Golden, ExportedDirectory,
                         testing::Values("llama3", "llama_tied", "qwen2", "qwen3", "phi3", "gemma2", "gemma3",
                                         "qwen3_moe_sparse", "gpt_oss", "granite_hybrid", "mamba2", "lfm2",
                                         "deepseek_v2", "deepseek_v3", "stablelm_norms", "nemotron_h_latent", "gpt2",
                                         "phi", "phimoe", "arcee", "internlm2", "ministral3_far", "falcon", "cohere",
                                         "cohere2", "cohere_norms", "granite_swa", "granitemoe", "granitemoeshared",
                                         "olmo3", "exaone4", "exaone_moe", "glm4_moe", "ernie4_5_moe", "qwen2_moe",
                                         "dots1"),
                         [](const auto& test) { return std::string(test.param); });

// Rows of queries and keys change places where readers of GGUF take other pairs than the directory has; no family has it the other
// way round, for which no file could be written. As every class is by itself.
TEST(ExportedPairs, AreThoseThatEachFamilysReaderTakes) {
  namespace bj = boost::json;
  std::set<std::string_view> moved;
  const bj::value defaults =
      bj::parse(base::read_file(repository() / "tests/golden/class_defaults.json", 4 << 20).value());
  for (const auto& [model_type, config] : defaults.as_object()) {
    SCOPED_TRACE(std::string(model_type));
    const io::ModelFiles files =
        io::ModelFiles::from_hugging_face(io::HfConfig::parse(bj::serialize(config)).value(), {}).value();
    const Family& family = *find_family(files).value();
    if (family.gguf.empty()) continue;
    const auto wanted = family.read_hf(HfKeys::of(files).value());
    if (!wanted) continue;  // needs weights
    const auto got = read_back(family, gguf_model_keys(family, *wanted), wanted->vocab);
    if (!got) continue;  // refused
    using engine::plan::RopeLayout;
    EXPECT_FALSE(wanted->attention.rope_layout == RopeLayout::kInterleaved &&
                 got->attention.rope_layout == RopeLayout::kHalf);
    if (pairs_become_neighbours(*wanted, *got)) moved.insert(family.name);
  }
  EXPECT_EQ(moved, (std::set<std::string_view>{"arcee", "granite", "granite_moe", "llama", "ministral3", "smollm3"}));
}

struct Refusal {
  const char* family;
  const char* says;
};
class RefusedDirectory : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedDirectory, SaysWhatGgufCannot) {
  const Scratch out("refused");
  const auto result =
      quantize(*family_model(GetParam().family, Format::kHuggingFace), {.type = DType::kBF16}, out.path());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, base::ErrorCode::kFormatCannotExpress);
  EXPECT_NE(result.error().message.find(GetParam().says), std::string::npos) << result.error().message;
  EXPECT_FALSE(std::filesystem::exists(out.path()));
}

INSTANTIATE_TEST_SUITE_P(Golden, RefusedDirectory,
                         testing::Values(Refusal{"mistral", "window of 24 positions in layer 0"},
                                         Refusal{"qwen3_moe", "kind of layer that layer 1 is"},
                                         Refusal{"phimoe_reaches", "reach of the mixer of experts"}),
                         [](const auto& test) { return std::string(test.param.family); });

// A fixture's directory whose configuration has other values. The copy is gone at the end.
class ChangedDirectory {
 public:
  ChangedDirectory(const std::string& family, const char* values) {
    static int count = 0;
    path_ = std::filesystem::path(testing::TempDir()) / fmt::format("llorch-changed-{}-{}", ::getpid(), ++count);
    namespace bj = boost::json;
    const std::filesystem::path stored = *family_model(family, Format::kHuggingFace);
    bj::value config = bj::parse(base::read_file(stored / "config.json", 1 << 20).value());
    const bj::value changes = bj::parse(values);
    for (const auto& [key, value] : changes.as_object()) config.as_object()[key] = value;
    std::filesystem::create_directory(path_);
    std::ofstream(path_ / "config.json") << bj::serialize(config);
    std::filesystem::create_symlink(std::filesystem::absolute(stored / "model.safetensors"),
                                    path_ / "model.safetensors");
  }
  ~ChangedDirectory() { std::filesystem::remove_all(path_); }
  ChangedDirectory(const ChangedDirectory&) = delete;
  ChangedDirectory& operator=(const ChangedDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void expect_refused(const std::string& family, const char* values, std::string_view says) {
  const ChangedDirectory changed(family, values);
  const Scratch out("refused");
  const auto result = quantize(changed.path(), {.type = DType::kBF16}, out.path());
  ASSERT_FALSE(result) << values;
  EXPECT_EQ(result.error().code, base::ErrorCode::kFormatCannotExpress);
  EXPECT_NE(result.error().message.find(says), std::string::npos) << result.error().message;
}

class PeriodicWindows : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!family_model(GetParam(), Format::kHuggingFace)) GTEST_SKIP() << "no fixture of " << GetParam();
  }
};

TEST_P(PeriodicWindows, AreWrittenAsOneNumber) {
  constexpr const char* kTwo =
      R"({"layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]})";
  constexpr const char* kAll =
      R"({"layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention"]})";
  const Golden golden = read_golden(family_directory(GetParam()) / "golden.bin");
  for (const auto& [values, period] : {std::pair{kTwo, 2U}, std::pair{kAll, 5U}}) {
    const ChangedDirectory changed(GetParam(), values);
    const Scratch out("period");
    must(quantize(changed.path(), {.type = DType::kBF16}, out.path()));
    const io::GgufFile file = io::GgufFile::open(out.path()).value();
    const auto architecture = std::get<std::string_view>(*file.find("general.architecture"));
    const auto got = file.u32(fmt::format("{}.attention.sliding_window_pattern", architecture));
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(*got, period);
    EXPECT_TRUE(same_bits(logits_of(out.path(), golden.tokens, {}), logits_of(changed.path(), golden.tokens, {})));
  }
}

TEST_P(PeriodicWindows, AreRefusedWithoutAPeriod) {
  expect_refused(GetParam(),
                 R"({"layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]})",
                 "windows whose layers follow no period");
}

INSTANTIATE_TEST_SUITE_P(Golden, PeriodicWindows, testing::Values("olmo3", "cohere2", "exaone4", "exaone_moe"),
                         [](const auto& test) { return std::string(test.param); });

// llama.cpp gives their layers a window of 0, in which a row sees nothing.
TEST(NoWindow, IsRefusedWhereReadersHaveOne) {
  constexpr const char* kNone =
      R"({"sliding_window": null,
          "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"]})";
  for (const char* family : {"cohere2", "exaone_moe"}) expect_refused(family, kNone, "that no layer has a window");
}

// llama.cpp rotates all layers of OLMo 3 by one base.
TEST(SecondBase, OfOlmoIsRefused) {
  if (!family_model("olmo3", Format::kHuggingFace)) GTEST_SKIP() << "no fixture of olmo3";
  expect_refused("olmo3", R"({"rope_parameters": {
                     "full_attention": {"rope_theta": 500000.0, "rope_type": "default"},
                     "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}})",
                 "its rotation's frequencies");
}

TEST(GraniteHybrid, WithoutAMixerIsNamedByTheRestOfItsLayers) {
  constexpr const char* kAttends = R"({"model_type": "granitemoehybrid", "position_embedding_type": "rope",
                                       "layer_types": ["attention", "attention"]})";
  const ChangedDirectory changed("granitemoeshared", kAttends);
  const Scratch out("granite");
  must(quantize(changed.path(), {.type = DType::kBF16}, out.path()));
  const io::GgufFile file = io::GgufFile::open(out.path()).value();
  EXPECT_EQ(std::get<std::string_view>(*file.find("general.architecture")), "granitemoe");
  const Golden golden = read_golden(family_directory("granitemoeshared") / "golden.bin");
  EXPECT_LE(relative_error(logits_of(out.path(), golden.tokens, {}), golden.logits), 5e-5);
  // llama.cpp rotates the layers of every granitemoe.
  expect_refused("granitemoeshared", R"({"model_type": "granitemoehybrid", "layer_types": ["attention", "attention"]})",
                 "that no layer rotates");

  const io::ModelFiles dense =
      io::ModelFiles::from_hugging_face(io::HfConfig::parse(R"({"model_type": "granitemoehybrid", "hidden_size": 64,
          "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 192,
          "max_position_embeddings": 512, "num_local_experts": 0, "shared_intermediate_size": 96, "intermediate_size": 96,
          "hidden_act": "silu", "rms_norm_eps": 1e-6, "position_embedding_type": "rope", "layer_types": ["attention"]})")
                                            .value(),
                                        {})
          .value();
  const Family& family = *find_family(dense).value();
  const auto config = family.read_hf(HfKeys::of(dense).value());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(gguf_architecture(family, *config), "granite");
}

// Rows of 256, so that blocks of every type fit.
SynthRequest wide(std::string architecture) {
  return {.architecture = std::move(architecture),
          .shape = {.layers = 2, .width = 256, .ffn = 512, .vocab = 320, .context = 256},
          .seed = 11};
}

std::vector<base::TokenId> some_tokens(std::uint32_t count) {
  std::vector<base::TokenId> tokens;
  for (std::uint32_t i = 0; i < count; ++i) tokens.push_back(base::TokenId{(i * 37 + 5) % 320});
  return tokens;
}

struct TypeCase {
  const char* name;
  double kl_max;  // about twice what is measured
};
class Types : public testing::TestWithParam<TypeCase> {};

TEST_P(Types, LoadRunAndStayCloseToTheFloats) {
  const DType type = *quantize_target(GetParam().name);
  const Scratch floats("floats"), out(GetParam().name), again("again"), threaded("threaded");
  const ExportModel model = synth_model(wide("llama")).value();
  must(write_as(model, {.type = DType::kF32}, floats.path()));
  must(write_as(model, {.type = type}, out.path()));
  const auto tokens = some_tokens(24);
  const double kl = mean_kl(logits_of(floats.path(), tokens, {}), logits_of(out.path(), tokens, {}), 320);
  RecordProperty("kl", fmt::format("{:.3g}", kl));
  EXPECT_LE(kl, GetParam().kl_max);

  // What is of the type already is copied, from a file made in one step or in two, and whatever the threads.
  must(quantize(out.path(), {.type = type}, again.path()));
  EXPECT_EQ(again.bytes(), out.bytes());
  must(quantize(floats.path(), {.type = type}, again.path()));
  EXPECT_EQ(again.bytes(), out.bytes());
  must(write_as(model, {.type = type}, threaded.path(), 3));
  EXPECT_EQ(threaded.bytes(), out.bytes());
}

INSTANTIATE_TEST_SUITE_P(Golden, Types,
                         testing::Values(TypeCase{"F32", 0}, TypeCase{"F16", 5e-7}, TypeCase{"BF16", 3e-5},
                                         TypeCase{"Q8_0", 7e-4}, TypeCase{"Q6_K", 3e-3}, TypeCase{"Q5_K", 1e-2},
                                         TypeCase{"Q5_1", 1e-2}, TypeCase{"Q5_0", 1.2e-2}, TypeCase{"Q4_K", 4e-2},
                                         TypeCase{"Q4_1", 4e-2}, TypeCase{"Q4_0", 4.5e-2}, TypeCase{"IQ4_NL", 4e-2},
                                         TypeCase{"IQ4_XS", 4e-2}, TypeCase{"MXFP4", 6e-2}, TypeCase{"Q3_K", 8e-2},
                                         TypeCase{"Q2_K", 0.2}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Requantizing, IsRefusedUnlessAskedFor) {
  const Scratch q8("q8"), q4("q4");
  must(write_as(synth_model(wide("llama")).value(), {.type = DType::kQ8_0}, q8.path()));
  const auto refused = quantize(q8.path(), {.type = DType::kQ4_0}, q4.path());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kInvalidParams);
  EXPECT_NE(refused.error().message.find("--allow-requantize"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(q4.path()));
  must(quantize(q8.path(), {.type = DType::kQ4_0, .allow_requantize = true}, q4.path()));
  must(quantize(q8.path(), {.type = DType::kF32}, q4.path()));  // exact: nothing is rounded
}

class Synthetic : public testing::TestWithParam<const char*> {};

TEST_P(Synthetic, LoadsAndDecodesAsItPrefills) {
  const SynthRequest request = wide(GetParam());
  const Scratch out(GetParam()), again("again");
  must(write_as(synth_model(request).value(), {.type = DType::kQ8_0}, out.path()));
  must(write_as(synth_model(request).value(), {.type = DType::kQ8_0}, again.path()));
  EXPECT_EQ(out.bytes(), again.bytes());
  SynthRequest other = request;
  other.seed = 12;
  must(write_as(synth_model(other).value(), {.type = DType::kQ8_0}, again.path()));
  EXPECT_NE(out.bytes(), again.bytes());

  const auto tokens = some_tokens(40);
  const std::vector<float> prefilled = logits_of(out.path(), tokens, {});
  EXPECT_TRUE(same_bits(logits_of(out.path(), tokens, {.chunk = 1}), prefilled));
  // Neither flat nor nothing but one token, and not the same after every token.
  double square = 0;
  for (const float x : prefilled) square += x * x;
  const double deviation = std::sqrt(square / static_cast<double>(prefilled.size()));
  EXPECT_TRUE(deviation > 0.05 && deviation < 20) << deviation;
  std::set<std::size_t> likeliest;
  for (std::size_t i = 0; i < tokens.size(); ++i) likeliest.insert(argmax(std::span(prefilled).subspan(i * 320, 320)));
  EXPECT_GE(likeliest.size(), 10U);
}

INSTANTIATE_TEST_SUITE_P(Golden, Synthetic,
                         testing::Values("llama", "qwen2", "qwen3", "phi3", "gemma2", "gemma3", "qwen3moe", "gpt-oss",
                                         "granitehybrid", "mamba2", "lfm2", "deepseek2"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(Synthetic, HasTheShapeThatIsAskedFor) {
  const SynthRequest request{.architecture = "qwen3moe",
                             .shape = {.layers = 3,
                                       .width = 96,
                                       .heads = 6,
                                       .kv_heads = 2,
                                       .head_dim = 32,
                                       .vocab = 301,
                                       .experts = 5,
                                       .experts_used = 3,
                                       .expert_ffn = 64},
                             .seed = 1};
  const Scratch out("shape");
  must(write_as(synth_model(request).value(), {.type = DType::kQ4_K}, out.path()));
  const io::ModelFiles files = io::ModelFiles::open(out.path()).value();
  EXPECT_EQ(io::describe(*files.find_tensor("token_embd.weight")), "Q5_0 [301, 96]");  // no blocks of 256 in 96
  EXPECT_EQ(io::describe(*files.find_tensor("output.weight")), "Q8_0 [301, 96]");
  EXPECT_EQ(io::describe(*files.find_tensor("blk.2.attn_q.weight")), "Q5_0 [192, 96]");
  EXPECT_EQ(io::describe(*files.find_tensor("blk.2.ffn_down_exps.weight")), "Q5_0 [5, 96, 64]");
  EXPECT_EQ(io::describe(*files.find_tensor("blk.0.ffn_gate_inp.weight")), "F32 [5, 96]");
  EXPECT_EQ(io::describe(*files.find_tensor("blk.0.attn_q_norm.weight")), "F32 [32]");
  EXPECT_EQ(files.gguf()->u32("qwen3moe.expert_used_count").value(), 3U);
}

// Shapes are what their names say: as many weights as the published models have, to their rounding.
TEST(Synthetic, PresetsHaveTheSizesOfTheirModels) {
  const std::map<std::string_view, double> billions{
      {"llama-1b", 1.24},   {"llama-3b", 3.21},      {"llama-8b", 8.03},         {"llama-70b", 70.6},
      {"mistral-7b", 7.25}, {"qwen2.5-0.5b", 0.494}, {"qwen2.5-7b", 7.62},       {"qwen3-0.6b", 0.596},
      {"qwen3-8b", 8.19},   {"qwen3-30b-a3b", 30.5}, {"gpt-oss-20b", 20.9},      {"gemma2-2b", 2.61},
      {"gemma3-1b", 1.0},   {"phi4-mini", 3.84},     {"deepseek-v2-lite", 15.7}, {"deepseek-v3", 671},
      {"mamba2-2.7b", 2.7}, {"lfm2-1.2b", 1.17},     {"granite-4-h-tiny", 6.94}};
  for (const SynthPreset& preset : synth_presets()) {
    const auto model = synth_model({.architecture = std::string(preset.architecture), .shape = preset.shape});
    ASSERT_TRUE(model) << preset.name << ": " << model.error().message;
    double parameters = 0;
    for (const ExportTensor& tensor : model->tensors) parameters += static_cast<double>(tensor.elements_count());
    EXPECT_NEAR(parameters / 1e9, billions.at(preset.name), 0.02 * billions.at(preset.name)) << preset.name;
  }
}

TEST(Synthetic, RefusesWhatContradictsItself) {
  const auto code = [](const SynthRequest& request) {
    const auto model = synth_model(request);
    return model ? base::ErrorCode::kInternal : model.error().code;
  };
  EXPECT_EQ(code({.architecture = "abacus"}), base::ErrorCode::kUnknownArchitecture);
  EXPECT_EQ(code({.architecture = "llama", .shape = {.width = 100, .heads = 3}}), base::ErrorCode::kInvalidParams);
  EXPECT_EQ(code({.architecture = "llama", .shape = {.heads = 4, .kv_heads = 3}}), base::ErrorCode::kConfigKeyInvalid);
  EXPECT_EQ(code({.architecture = "llama", .shape = {.vocab = 258}}), base::ErrorCode::kInvalidParams);
  EXPECT_EQ(code({.architecture = "llama", .shape = {.experts = 4}}), base::ErrorCode::kInvalidParams);
  EXPECT_EQ(code({.architecture = "llama", .shape = {.layers = 0}}), base::ErrorCode::kInvalidParams);
}

// Nothing is left of a file that could not be finished.
TEST(Writing, LeavesNothingBehind) {
  const Scratch out("stopped");
  const ExportModel model = synth_model(wide("llama")).value();
  const auto types = choose_types(model, {.type = DType::kQ4_0}).value();
  std::size_t calls = 0;
  const auto stop = [&](std::uint64_t done, std::uint64_t total) -> base::Result<> {
    EXPECT_LE(done, total);
    if (++calls == 5) return base::fail(base::ErrorCode::kCancelled, "enough");
    return {};
  };
  const auto result = write_gguf(model, types, DType::kQ4_0, out.path(), {.progress = stop});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, base::ErrorCode::kCancelled);
  for (const auto& entry : std::filesystem::directory_iterator(out.path().parent_path()))
    EXPECT_EQ(entry.path().string().find(out.path().filename().string()), std::string::npos) << entry.path();
}

}  // namespace
}  // namespace llorch::golden
