// Queries, keys and values in one matrix, as MiMo V2.5 stores them: the bits are those of the same weights in three.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <map>

#include "engine/io/gguf_writer.h"
#include "engine/io/quant/fp8.h"
#include "engine/models/testing/tiny_tensors.h"
#include "golden_support.h"

namespace llorch::golden {
namespace {

using engine::io::ModelFiles;
using engine::models::testing::TinyTensor;
using Tensors = std::map<std::string, TinyTensor>;

// Two key heads in layers that see all positions, and four in the others: two in each of two pieces.
constexpr const char* kFamily = "mimo_v2_flash";
constexpr std::uint32_t kLayers = 4, kPieces = 2;
constexpr std::array kProjections{"q_proj.weight", "k_proj.weight", "v_proj.weight"};

std::filesystem::path original() { return family_directory(kFamily); }

// A directory of this test, gone at its end.
class Scratch {
 public:
  Scratch() : path_(std::filesystem::path(testing::TempDir()) / fmt::format("llorch-fused-{}", ::getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::vector<float> logits_of_model(const std::filesystem::path& model) {
  return logits_of(model, read_golden(original() / "golden.bin").tokens, {});
}
// Of the fixture's directory with these tensors, and these keys in its configuration before all others.
std::vector<float> logits_with(const Tensors& tensors, const std::string& keys) {
  const Scratch out;
  std::ifstream in(original() / "config.json");
  std::string config{std::istreambuf_iterator<char>(in), {}};
  config.insert(config.find('{') + 1, keys);
  std::ofstream(out.path() / "config.json") << config;
  std::vector<std::byte> file;
  (void)engine::models::testing::tiny_files(tensors, file);
  std::ofstream(out.path() / "model.safetensors", std::ios::binary)
      .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  return logits_of_model(out.path());
}

Tensors tensors_of_original() {
  Tensors tensors;
  const ModelFiles files = ModelFiles::open(original()).value();
  for (const engine::io::FileTensor& tensor : files.tensors()) {
    const auto shape = tensor.shape();
    tensors[std::string(tensor.name)] = {.type = std::string(engine::io::stored_type_info(tensor.type).name),
                                         .shape = {shape.begin(), shape.end()},
                                         .bytes = tensor.data.read_all().value()};
  }
  return tensors;
}
std::string prefix_of(std::uint32_t layer) { return fmt::format("model.layers.{}.self_attn.", layer); }

TEST(FusedProjections, InOneMatrixOfFloats) {
  const Tensors split = tensors_of_original();
  Tensors fused = split;
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    TinyTensor& all = fused[prefix_of(layer) + "qkv_proj.weight"];
    all = {.type = "BF16", .shape = {0, 64}, .bytes = {}};
    for (const char* name : kProjections) {
      const TinyTensor& part = split.at(prefix_of(layer) + name);
      ASSERT_EQ(part.type, all.type);
      all.shape[0] += part.shape[0];
      all.bytes.insert(all.bytes.end(), part.bytes.begin(), part.bytes.end());
      fused.erase(prefix_of(layer) + name);
    }
  }
  EXPECT_TRUE(
      same_bits(logits_with(fused, R"("attention_projection_layout":"fused_qkv",)"), logits_of_model(original())));
}

// Fills one layer's matrix of two pieces in FP8 with random codes and scales, and the three of BF16 with what they stand for.
// Blocks of 40 x 48 do not fill a piece, of 88 rows or of 128.
void make_pieces(std::uint32_t layer, std::uint32_t& state, Tensors& fused, Tensors& split) {
  constexpr std::uint32_t kBlockRows = 40, kBlockCols = 48, kWidth = 64;
  const auto random = [&] { return (state = state * 1664525U + 1013904223U) >> 8; };
  std::array<TinyTensor*, kProjections.size()> parts{};
  std::uint64_t rows = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i] = &split.at(prefix_of(layer) + kProjections[i]);
    rows += parts[i]->shape[0];
    fused.erase(prefix_of(layer) + kProjections[i]);
  }
  const std::uint64_t piece_rows = rows / kPieces, blocks = (piece_rows + kBlockRows - 1) / kBlockRows;
  std::vector<std::uint8_t> codes(rows * kWidth);
  for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(random() & 0xBF);  // below 2
  std::vector<float> scales(kPieces * blocks * 2);
  for (float& scale : scales) scale = 0.02F + 1e-8F * static_cast<float>(random());
  std::uint64_t row = 0;
  for (std::uint32_t piece = 0; piece < kPieces; ++piece)
    for (TinyTensor* part : parts) {
      const std::uint64_t share = part->shape[0] / kPieces;
      for (std::uint64_t i = 0; i < share * kWidth; ++i) {
        const std::uint64_t at = row * kWidth + i, in_piece = at / kWidth - piece * piece_rows;
        const double scale = scales[(piece * blocks + in_piece / kBlockRows) * 2 + at % kWidth / kBlockCols];
        const std::uint16_t value = engine::io::f64_to_bf16(engine::io::f8_e4m3_to_f32(codes[at]) * scale);
        std::memcpy(part->bytes.data() + 2 * (piece * share * kWidth + i), &value, sizeof value);
      }
      row += share;
    }
  fused[prefix_of(layer) + "qkv_proj.weight"] = TinyTensor::raw("F8_E4M3", {rows, kWidth}, codes);
  fused[prefix_of(layer) + "qkv_proj.weight_scale_inv"] = TinyTensor::f32({kPieces * blocks, 2}, scales);
}

TEST(FusedProjections, InPiecesOfFp8) {
  Tensors split = tensors_of_original(), fused = split;
  std::uint32_t state = 3;
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) make_pieces(layer, state, fused, split);
  const std::string keys = R"("attention_projection_layout":"fused_qkv",
      "quantization_config":{"quant_method":"fp8","fmt":"e4m3","weight_block_size":[40,48]},)";
  const std::vector<float> logits = logits_with(fused, keys);
  EXPECT_TRUE(same_bits(logits, logits_with(split, "")));
  EXPECT_FALSE(same_bits(logits, logits_of_model(original()))) << "the weights are others";
}

TEST(FusedProjections, OfAGgufFile) {
  const engine::io::GgufFile file = engine::io::GgufFile::open(original() / "model.gguf").value();
  engine::io::GgufWriter writer;
  for (const engine::io::GgufEntry& entry : file.metadata()) writer.put(entry.key, entry.value);
  std::map<std::string, std::vector<std::byte>> fused;
  for (const engine::io::GgufTensor& tensor : file.tensors()) {
    const std::string name(tensor.name);
    if (!name.ends_with("attn_q.weight")) {
      if (!name.ends_with("attn_k.weight") && !name.ends_with("attn_v.weight"))
        writer.add_tensor({name, tensor.dtype, {tensor.dims.begin(), tensor.dims.begin() + tensor.rank}}, tensor.data);
      continue;
    }
    const std::string prefix = name.substr(0, name.size() - std::string("q.weight").size());
    std::vector<std::byte>& bytes = fused[prefix];
    std::uint64_t rows = 0;
    for (const char* part : {"q.weight", "k.weight", "v.weight"}) {
      const engine::io::GgufTensor& one = *file.find_tensor(prefix + part);
      ASSERT_EQ(one.dtype, tensor.dtype);
      const std::vector<std::byte> data = one.data.read_all().value();
      bytes.insert(bytes.end(), data.begin(), data.end());
      rows += one.dims[1];
    }
    writer.add_tensor({prefix + "qkv.weight", tensor.dtype, {tensor.dims[0], rows}}, bytes);
  }
  ASSERT_EQ(fused.size(), kLayers);
  const Scratch out;
  ASSERT_TRUE(writer.write(out.path() / "model.gguf"));
  EXPECT_TRUE(same_bits(logits_of_model(out.path() / "model.gguf"), logits_of_model(original() / "model.gguf")));
}

}  // namespace
}  // namespace llorch::golden
