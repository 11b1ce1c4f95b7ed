// A family nobody knows, declared here as data: what it takes to add one made of existing operations.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "engine/io/gguf_writer.h"
#include "engine/models/config/gguf_keys.h"
#include "engine/models/families/standard.h"
#include "engine/models/registry.h"
#include "golden_support.h"

namespace llorch::golden::new_family {
namespace {

using namespace engine::models;
using namespace engine::models::families;
using engine::inference::Engine;
using engine::io::GgufFile;
using engine::io::GgufWriter;
using engine::io::ModelFiles;
using engine::plan::DType;

// "Ladder": attention and feed-forward are layers of their own, which take turns; q, k and v are one tensor.
constexpr std::array kAttentionRung{norm(NormVariant::kAttention), attention(), add()};
constexpr std::array kFfnRung{norm(NormVariant::kFfn), ffn(), add()};
constexpr std::array<LayerTemplate, 2> kRungs{kAttentionRung, kFfnRung};

constexpr WeightRow qkv(AttentionSlot slot) {
  return row(slot, Source("rung.{}.qkv", Load::kRows, AttentionSlot::kQ, AttentionSlot::kV), "");
}
constexpr std::array kLadderWeights{
    row(EmbeddingSlot::kWeight, "words", ""),
    row(NormVariant::kOutput, "top.norm", ""),
    head_row("top.head", ""),
    row(NormVariant::kAttention, "rung.{}.norm", ""),
    row(NormVariant::kFfn, "rung.{}.norm", ""),
    qkv(AttentionSlot::kQ),
    qkv(AttentionSlot::kK),
    qkv(AttentionSlot::kV),
    row(AttentionSlot::kO, "rung.{}.out", ""),
    row(FfnSlot::kGate, "rung.{}.gate", ""),
    row(FfnSlot::kUp, "rung.{}.up", ""),
    row(FfnSlot::kDown, "rung.{}.down", ""),
};
constexpr std::array<std::string_view, 1> kLadderNames{"ladder"};
constexpr std::array<std::string_view, 1> kLadderClaimed{"rope_freqs.weight"};

base::Result<ModelConfig> read_ladder(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, engine::plan::RopeLayout::kInterleaved));
  for (std::size_t n = 0; n < config.layers.size(); ++n) config.layers[n].layer_template = n % 2;
  return config;
}

const Family kLadder{.name = "ladder",
                     .gguf = kLadderNames,
                     .layer_templates = kRungs,
                     .weights = kLadderWeights,
                     .gguf_claimed = kLadderClaimed,
                     .read_gguf = read_ladder};

// llama3's fixture as a ladder: every block becomes two rungs.
class LadderFile {
 public:
  explicit LadderFile(const GgufFile& llama) : llama_(llama) {
    for (const engine::io::GgufEntry& entry : llama.metadata()) put_key(entry);
    for (const engine::io::GgufTensor& tensor : llama.tensors()) put_tensor(tensor);
    bytes_ = writer_.to_bytes().value();
  }
  ModelFiles open() const { return ModelFiles::from_gguf(GgufFile::parse(bytes_, "ladder.gguf").value()).value(); }

 private:
  void put_key(const engine::io::GgufEntry& entry) {
    if (entry.key.starts_with("tokenizer.")) return;
    if (entry.key == "general.architecture") return writer_.put(entry.key, std::string_view("ladder"));
    if (entry.key == "llama.block_count") return writer_.put("ladder.block_count", std::uint32_t{6});
    const bool own = entry.key.starts_with("llama.");
    writer_.put(own ? "ladder." + std::string(entry.key.substr(6)) : std::string(entry.key), entry.value);
  }

  void put_tensor(const engine::io::GgufTensor& tensor) {
    const std::map<std::string_view, const char*> globals{{"token_embd.weight", "words"},
                                                          {"output_norm.weight", "top.norm"},
                                                          {"output.weight", "top.head"},
                                                          {"rope_freqs.weight", "rope_freqs.weight"}};
    const std::map<std::string_view, std::pair<int, const char*>> rungs{
        {"attn_norm.weight", {0, "norm"}}, {"attn_output.weight", {0, "out"}}, {"ffn_norm.weight", {1, "norm"}},
        {"ffn_gate.weight", {1, "gate"}},  {"ffn_up.weight", {1, "up"}},       {"ffn_down.weight", {1, "down"}}};
    if (const auto global = globals.find(tensor.name); global != globals.end()) return add(tensor, global->second);
    const int block = tensor.name[4] - '0';
    const std::string_view part = tensor.name.substr(6);
    if (const auto rung = rungs.find(part); rung != rungs.end())
      return add(tensor, fmt::format("rung.{}.{}", 2 * block + rung->second.first, rung->second.second));
    if (part == "attn_q.weight") add_qkv(block);
  }

  void add(const engine::io::GgufTensor& tensor, std::string name) {
    writer_.add_tensor({std::move(name), tensor.dtype, {tensor.dims.begin(), tensor.dims.begin() + tensor.rank}},
                       tensor.data);
  }

  void add_qkv(int block) {
    std::vector<std::byte>& joined = joined_.emplace_back();
    std::uint64_t rows = 0;
    const engine::io::GgufTensor* tensor = nullptr;
    for (const char* part : {"attn_q", "attn_k", "attn_v"}) {
      tensor = llama_.find_tensor(fmt::format("blk.{}.{}.weight", block, part));
      const std::vector<std::byte> rows_of_part = tensor->data.read_all().value();
      joined.insert(joined.end(), rows_of_part.begin(), rows_of_part.end());
      rows += tensor->dims[1];
    }
    writer_.add_tensor({fmt::format("rung.{}.qkv", 2 * block), tensor->dtype, {tensor->dims[0], rows}}, joined);
  }

  const GgufFile& llama_;
  std::deque<std::vector<std::byte>> joined_;
  GgufWriter writer_;
  std::vector<std::byte> bytes_;
};

TEST(NewFamily, IsDataAlone) {
  const auto path = *family_model("llama3", Format::kGguf);
  const GgufFile llama = GgufFile::open(path).value();
  const LadderFile ladder(llama);
  const auto unknown = find_family(ladder.open());
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, base::ErrorCode::kUnknownArchitecture);

  ModelFiles files = ladder.open();
  auto model = compile_model(files, kLadder, DType::kF32);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->plans.decoder_prefill.plan.instructions.size(), 6 * 3 + 3U);
  const auto backend =
      engine::compute::cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1ULL << 30}).value();
  const auto engine =
      Engine::load(std::move(files), *std::move(model), {.kv_dtype = DType::kF32, .output_rows_max = 512}, *backend);
  ASSERT_TRUE(engine) << engine.error().message;

  const Golden golden = read_golden(family_directory("llama3") / "golden.bin");
  std::vector<float> logits;
  ASSERT_TRUE((*engine)->score(0, golden.tokens, [&](std::size_t, std::span<const float> row) {
    logits.insert(logits.end(), row.begin(), row.end());
  }));
  EXPECT_TRUE(same_bits(logits, logits_of(path, golden.tokens, {})));
}

}  // namespace
}  // namespace llorch::golden::new_family
