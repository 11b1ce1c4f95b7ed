#include "engine/models/testing/tiny_llama.h"

#include <cstring>
#include <deque>

#include "base/assert.h"
#include "engine/io/gguf_writer.h"

namespace llorch::engine::models::testing {
namespace {

using Dims = std::vector<std::uint64_t>;

// Small numbers without a pattern, the same in every run.
std::vector<std::byte> values(std::uint64_t count, std::uint32_t seed) {
  std::vector<float> floats(count);
  for (float& value : floats) {
    seed = seed * 1664525 + 1013904223;
    value = static_cast<float>(static_cast<std::int32_t>(seed >> 8) - (1 << 23)) / static_cast<float>(1 << 25);
  }
  std::vector<std::byte> result(count * sizeof(float));
  std::memcpy(result.data(), floats.data(), result.size());
  return result;
}

std::map<std::string, Dims> tensors_of(const TinyLlama& m) {
  const std::uint64_t d = m.width / m.heads;
  const std::uint64_t kv = m.kv_heads * d;
  std::map<std::string, Dims> tensors{{"token_embd.weight", {m.width, m.vocab}}, {"output_norm.weight", {m.width}}};
  if (!m.tied) tensors["output.weight"] = {m.width, m.vocab};
  for (std::uint32_t layer = 0; layer < m.layers; ++layer) {
    const std::string blk = "blk." + std::to_string(layer) + ".";
    const std::map<std::string, Dims> matrices{{"attn_q", {m.width, m.width}}, {"attn_k", {m.width, kv}},
                                               {"attn_v", {m.width, kv}},      {"attn_output", {m.width, m.width}},
                                               {"ffn_gate", {m.width, m.ffn}}, {"ffn_up", {m.width, m.ffn}},
                                               {"ffn_down", {m.ffn, m.width}}};
    for (const auto& [name, dims] : matrices) {
      tensors[blk + name + ".weight"] = dims;
      if (m.biases) tensors[blk + name + ".bias"] = {dims[1]};
    }
    tensors[blk + "attn_norm.weight"] = {m.width};
    tensors[blk + "ffn_norm.weight"] = {m.width};
  }
  for (const auto& [name, dims] : m.shapes) tensors[name] = dims;
  return tensors;
}

}  // namespace

std::vector<std::byte> TinyLlama::bytes() const {
  std::map<std::string, io::GgufValue> keys{{"general.architecture", std::string_view("llama")},
                                            {"llama.context_length", context},
                                            {"llama.embedding_length", width},
                                            {"llama.block_count", layers},
                                            {"llama.feed_forward_length", ffn},
                                            {"llama.attention.head_count", heads},
                                            {"llama.attention.head_count_kv", kv_heads},
                                            {"llama.attention.layer_norm_rms_epsilon", 1e-5F}};
  for (const auto& [key, value] : overrides) keys[key] = value;
  io::GgufWriter writer;
  for (const auto& [key, value] : keys) {
    if (!without.contains(key)) writer.put(key, value);
  }
  std::deque<std::vector<std::byte>> data;
  std::uint32_t seed = 1;
  for (const auto& [name, dims] : tensors_of(*this)) {
    std::uint64_t count = 1;
    for (std::uint64_t dim : dims) count *= dim;
    data.push_back(values(count, seed++));
    plan::DType type = plan::DType::kF32;
    if (const auto other = types.find(name); other != types.end()) {
      type = other->second;
      data.back().resize(count / dims[0] * plan::row_bytes(type, dims[0]));
    }
    if (!without.contains(name)) writer.add_tensor({name, type, dims}, data.back());
  }
  if (!rope_divisors.empty()) {
    writer.add_tensor({"rope_freqs.weight", plan::DType::kF32, {rope_divisors.size()}},
                      std::as_bytes(std::span(rope_divisors)));
  }
  auto result = writer.to_bytes();
  ASSERT(result.has_value(), "{}", result.has_value() ? "" : result.error().message);
  return *std::move(result);
}

}  // namespace llorch::engine::models::testing
