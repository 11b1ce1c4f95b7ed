#include "cuda_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/assert.h"
#include "base/testing/environment.h"
#include "engine/compute/cuda/emulation/forwarding_driver.h"

namespace llorch::cuda_test {

using engine::inference::Engine;

namespace {

constexpr std::uint64_t kDeviceBytes = 1u << 30;

class MeteredDriver final : public engine::compute::cuda::emulation::ForwardingDriver {
 public:
  explicit MeteredDriver(std::uint64_t& peak_bytes)
      : ForwardingDriver(engine::compute::cuda::emulation::make_driver({.memory_bytes = kDeviceBytes})),
        peak_bytes_(peak_bytes) {}
  std::byte* malloc(std::uint64_t bytes) override {
    std::byte* const ptr = ForwardingDriver::malloc(bytes);
    ASSERT(ptr != nullptr, "{} bytes are more than the device has", bytes);
    taken_.emplace(ptr, bytes);
    used_bytes_ += bytes;
    peak_bytes_ = std::max(peak_bytes_, used_bytes_);
    return ptr;
  }
  void free(std::byte* ptr) noexcept override {
    used_bytes_ -= taken_.at(ptr);
    taken_.erase(ptr);
    ForwardingDriver::free(ptr);
  }

 private:
  std::uint64_t& peak_bytes_;
  std::uint64_t used_bytes_ = 0;
  std::map<std::byte*, std::uint64_t> taken_;
};

}  // namespace

std::unique_ptr<engine::compute::cuda::CudaBackend> make_metered_backend(std::uint64_t& peak_bytes) {
  return std::make_unique<engine::compute::cuda::CudaBackend>(std::make_unique<MeteredDriver>(peak_bytes),
                                                              kDeviceBytes);
}

namespace {
std::vector<std::string> names_of(std::span<const std::string> families) {
  std::vector<std::string> names;
  for (const std::string& family : families)
    for (const auto& [format, suffix] :
         {std::pair{golden::Format::kGguf, "_gguf"}, {golden::Format::kHuggingFace, "_hf"}})
      if (golden::family_model(family, format)) names.push_back(family + suffix);
  return names;
}
}  // namespace

std::vector<std::string> model_names() {
  const std::vector<std::string> families{
      "llama3",      "llama_tied",     "mistral",      "qwen2",     "qwen3",
      "phi3",        "gemma2",         "gemma3",       "qwen3_moe", "qwen3_moe_sparse",
      "gpt_oss",     "granite_hybrid", "mamba2",       "lfm2",      "deepseek_v2",
      "deepseek_v3", "qwen3_vl",       "qwen3_vl_moe", "mixtral",   "internlm3",
      "qwen2_moe",   "starcoder2",     "cohere",       "cohere2",   "stablelm",
      "exaone4",     "ernie4_5",       "ernie4_5_moe", "hunyuan",   "ministral3_far",
      "llama4_far",  "apertus"};
  return names_of(families);
}

std::vector<std::string> once_a_family(std::vector<std::string> names) {
  if (base::testing::is_nightly()) return names;
  const std::set<std::string> all(names.begin(), names.end());
  std::erase_if(names, [&](const std::string& name) {
    constexpr std::string_view kGguf = "_gguf";
    return name.ends_with(kGguf) && all.contains(name.substr(0, name.size() - kGguf.size()) + "_hf");
  });
  return names;
}

std::vector<std::string> model_names_of_2026() {
  std::vector<std::string> names = names_of(golden::families_of_2026());
  std::erase(names, "llama4_gguf");  // the file does not say how wide chunks are, which the reference knows
  for (const char* ours : {"deepseek_v4_mixed_hf",
                           "gemma4_experts_hf",
                           "cohere_norms_hf",
                           "stablelm_norms_hf",
                           "deepseek_v3_fp8_hf",
                           "deepseek_v4_own_hf",
                           "deepseek_v32_first_hf",
                           "glm_moe_dsa_shared_hf",
                           "nemotron_h_latent_hf",
                           "nemotron_h_latent_gguf",
                           "gemma_hf",
                           "glm4_hf",
                           "arcee_hf",
                           "olmoe_hf",
                           "granitemoe_hf",
                           "hunyuan_moe_hf",
                           "dots1_hf",
                           "exaone_moe_hf",
                           "minicpm3_hf",
                           "gpt_neox_hf",
                           "internlm2_hf",
                           "gpt2_hf",
                           "phi_hf",
                           "phi_gguf",
                           "phimoe_hf",
                           "phimoe_reaches_hf",
                           "falcon_hf",
                           "falcon_new_hf",
                           "mimo_v2_flash_hf"})
    names.emplace_back(ours);
  return names;
}

Model read_model(const std::string& name) {
  const bool gguf = name.ends_with("_gguf");
  Model model{.name = name, .family = name.substr(0, name.size() - (gguf ? 5 : 3))};
  const auto directory = golden::family_directory(model.family);
  model.path = *golden::family_model(model.family, gguf ? golden::Format::kGguf : golden::Format::kHuggingFace);
  model.reference = golden::read_golden(directory / "golden.bin");
  if (std::filesystem::exists(directory / "pixels.bin")) {
    model.pixels = golden::read_pixels(directory / "pixels.bin", model.reference.tokens.size());
    if (gguf) model.projector = directory / "mmproj.gguf";
  }
  return model;
}

std::unique_ptr<Engine> load(const Model& model, const RunOptions& options, engine::plan::Backend& backend) {
  return load(model, options, engine::inference::parallel::Devices{.backends = {&backend}});
}

std::unique_ptr<Engine> load(const Model& model, const RunOptions& options,
                             const engine::inference::parallel::Devices& devices) {
  engine::inference::EngineOptions wanted{.context_tokens = options.context_tokens,
                                          .slots = options.slots,
                                          .kv_dtype = options.kv_dtype,
                                          .prefill_chunk = options.chunk,
                                          .output_rows_max = options.chunk,
                                          .draws = options.draws};
  if (!model.projector.empty()) {
    wanted.projector = model.projector;
    wanted.image_token = base::TokenId{5};  // the fixture's vocabulary is made up
  }
  auto engine = Engine::load(model.path, wanted, devices);
  ASSERT(engine.has_value(), "{}: {}", model.name, engine.has_value() ? "" : engine.error().message);
  if (model.pixels) {
    const auto encoded = (*engine)->encode_images(0, model.pixels->images, model.pixels->patch_rows);
    ASSERT(encoded.has_value(), "{}: {}", model.name, encoded.has_value() ? "" : encoded.error().message);
  }
  return *std::move(engine);
}

std::vector<float> logits_of(const Model& model, const RunOptions& options, engine::plan::Backend& backend) {
  const auto engine = load(model, options, backend);
  std::vector<float> logits;
  const auto done = engine->score(0, model.reference.tokens, [&](std::size_t, std::span<const float> row) {
    logits.insert(logits.end(), row.begin(), row.end());
  });
  ASSERT(done.has_value(), "{}: {}", model.name, done.has_value() ? "" : done.error().message);
  return logits;
}

void expect_one_set_of_bits_in_any_batch(const Model& model, engine::plan::Backend& backend) {
  using engine::inference::SlotRows;
  constexpr std::uint32_t kSlots = 64, kFirstRows = 8;
  const std::vector<float> alone = logits_of(model, {}, backend);
  const std::span<const base::TokenId> tokens = model.reference.tokens;
  const auto engine = load(model, {.chunk = kSlots * kFirstRows, .slots = kSlots}, backend);
  for (std::uint32_t slot = 1; slot < kSlots && model.pixels; ++slot)
    ASSERT_TRUE(engine->encode_images(slot, model.pixels->images, model.pixels->patch_rows));
  const auto expected = [&](std::size_t i) {
    return std::span<const float>(alone).subspan(i * model.reference.vocab, model.reference.vocab);
  };
  std::size_t at = 0;
  for (const std::uint32_t slots : {64U, 64U, 33U, 9U, 2U, 1U}) {
    const std::size_t rows = at == 0 ? kFirstRows : 1;
    std::vector<SlotRows> step;
    for (std::uint32_t slot = 0; slot < slots; ++slot)
      step.push_back({slot, tokens.subspan(at, rows), engine::inference::RowsWanted::kLast});
    const auto output = engine->step(step);
    ASSERT_TRUE(output) << output.error().message;
    at += rows;
    for (std::uint32_t slot = 0; slot < slots; ++slot)
      EXPECT_TRUE(golden::same_bits(output->row(slot), expected(at - 1))) << slot << " of " << slots;
  }
}

}  // namespace llorch::cuda_test
