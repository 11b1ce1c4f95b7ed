#pragma once
// Engines on a CUDA backend, whatever machine is behind it.
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/token_id.h"
#include "engine/compute/cuda/emulation/driver.h"
#include "engine/inference/engine.h"
#include "golden_support.h"

namespace llorch::cuda_test {

using engine::compute::cuda::emulation::EmulationOptions;

// A model of tests/golden with its reference, images too where it takes them.
struct Model {
  std::string name;  // as test names and the launch table write it
  std::filesystem::path path;
  std::filesystem::path projector;  // empty: none
  std::string family;               // empty: the demonstration model
  golden::Golden reference;
  std::optional<golden::Pixels> pixels;
};
// Every family in every format it has, the ones with images last.
std::vector<std::string> model_names();
// Of fixtures kept beside the repository: none where they are not there.
std::vector<std::string> model_names_of_2026();
// Without a family's GGUF file where its Hugging Face directory is among `names`: weights and plan are the same, so its kernels
// would run a second time. At night both do; on the CPU device every test has both.
std::vector<std::string> once_a_family(std::vector<std::string> names);
Model read_model(const std::string& name);

struct RunOptions {
  engine::plan::DType kv_dtype = engine::plan::DType::kF32;
  std::uint32_t chunk = 128;
  std::uint32_t context_tokens = 512;
  std::uint32_t slots = 1;
  bool draws = false;
};

// An engine on `backend`, or on several that share the model, its images in slot 0; aborts the test when it cannot be.
std::unique_ptr<engine::inference::Engine> load(const Model& model, const RunOptions& options,
                                                engine::plan::Backend& backend);
std::unique_ptr<engine::inference::Engine> load(const Model& model, const RunOptions& options,
                                                const engine::inference::parallel::Devices& devices);
// An emulated device that notes the most memory it ever had given out, in `peak_bytes`, which outlives it.
std::unique_ptr<engine::compute::cuda::CudaBackend> make_metered_backend(std::uint64_t& peak_bytes);
// Teacher-forced logits of the reference's tokens, [tokens, vocab].
std::vector<float> logits_of(const Model& model, const RunOptions& options, engine::plan::Backend& backend);
// Expects of every slot in steps of 64 of them and fewer, all of which do the same, the bits that the model gives alone.
void expect_one_set_of_bits_in_any_batch(const Model& model, engine::plan::Backend& backend);

}  // namespace llorch::cuda_test
