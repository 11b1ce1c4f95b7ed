#pragma once
// Reference logits, and the engine run on the same ids.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/token_id.h"
#include "engine/compute/cpu/backend.h"
#include "engine/inference/engine.h"

namespace llorch::golden {

struct Golden {
  std::vector<base::TokenId> tokens;
  std::uint32_t vocab = 0;
  std::vector<float> logits;  // [tokens, vocab]
  std::span<const float> row(std::size_t i) const { return std::span(logits).subspan(i * vocab, vocab); }
};

std::filesystem::path repository();
// The file's layout is in README.md; a malformed one aborts the test.
Golden read_golden(const std::filesystem::path& path);
// A family's fixture: unpacked at build time, or of those kept beside the repository.
std::filesystem::path family_directory(const std::string& family);
// Fixtures of the architectures of 2025 and 2026, which are not kept in the repository, and those of them that are there and
// that this build runs.
std::filesystem::path shared_families();
std::vector<std::string> families_of_2026();
// The file or directory an engine loads; absent when the fixture has no model in that format.
enum class Format { kGguf, kHuggingFace };
std::optional<std::filesystem::path> family_model(const std::string& family, Format format);

// What a reference makes of an input.
struct Embedded {
  std::vector<base::TokenId> tokens;
  std::vector<float> vector;  // pooled, of whatever length
};
// A fixture of a model of embeddings: a Hugging Face directory with vectors.bin.
std::filesystem::path embeddings_directory(const std::string& name);
std::vector<Embedded> read_vectors(const std::filesystem::path& path);

// What a reference's layers put out: the embeddings, then each layer, the last one behind the final norm.
struct Hidden {
  std::uint32_t states = 0;  // layers + 1
  std::uint32_t rows = 0;
  std::uint32_t width = 0;
  std::vector<float> values;  // [states, rows, width]
  std::span<const float> row(std::size_t state, std::size_t i) const {
    return std::span(values).subspan((state * rows + i) * width, width);
  }
};
Hidden read_hidden(const std::filesystem::path& path);

// The images of a fixture's prompt, and where the reference put its rows.
struct Pixels {
  std::vector<engine::inference::vision::Image> images;
  std::vector<float> patch_rows;
  std::vector<std::uint32_t> positions;  // [3, rows]
};
Pixels read_pixels(const std::filesystem::path& path, std::size_t rows);
std::filesystem::path demo_model(const std::string& type);  // "f16", "q8_0", "q4_0"

struct RunOptions {
  engine::plan::DType kv_dtype = engine::plan::DType::kF32;
  std::uint32_t chunk = 512;
  std::uint32_t threads = 1;
  std::uint32_t slots = 1;
  std::string isa;
};

// A backend and an engine on it; aborts the test when either fails.
class Device {
 public:
  Device(const std::filesystem::path& model, const RunOptions& options);
  engine::inference::Engine& engine() { return *engine_; }
  engine::plan::Backend& backend() { return *backend_; }

 private:
  std::unique_ptr<engine::plan::Backend> backend_;
  std::unique_ptr<engine::inference::Engine> engine_;
};

// max |difference| over max |reference|; infinite when something is not a number.
double relative_error(std::span<const float> got, std::span<const float> expected);
std::size_t argmax(std::span<const float> row);
bool same_bits(std::span<const float> a, std::span<const float> b);
bool processor_has(const char* isa);
std::vector<std::string> processor_isas();  // every instruction set that it has

// Teacher-forced logits, [tokens, vocab].
std::vector<float> logits_of(const std::filesystem::path& model, std::span<const base::TokenId> tokens,
                             const RunOptions& options);

}  // namespace llorch::golden
