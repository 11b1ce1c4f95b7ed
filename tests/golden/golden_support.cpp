#include "golden_support.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/assert.h"
#include "base/file.h"
#include "engine/compute/cpu/host/isa.h"

namespace llorch::golden {

namespace {
// Where a bundle that runs away from the tree keeps its fixtures: models/demo, families and fairytale-5m-q4_0.gguf.
std::optional<std::filesystem::path> carried() {
  const char* const directory = std::getenv("LLORCH_FIXTURES");
  return directory == nullptr ? std::nullopt : std::optional<std::filesystem::path>(directory);
}
}  // namespace

std::filesystem::path repository() { return carried().value_or(LLORCH_SOURCE_DIR); }

std::filesystem::path demo_model(const std::string& type) {
  if (type == "q4_0")
    return carried() ? *carried() / "fairytale-5m-q4_0.gguf" : LLORCH_DEMO_Q4_0;  // made at build time
  return repository() / "models/demo" / ("fairytale-5m-" + type + ".gguf");
}

namespace {

// A file of little-endian words.
class Words {
 public:
  explicit Words(const std::filesystem::path& path) : path_(path), file_(base::MappedFile::open(path)) {
    ASSERT(file_.has_value(), "{}: {}", path.string(), file_.has_value() ? "" : file_.error().message);
  }
  std::uint32_t operator()(std::size_t i) const {
    std::uint32_t value = 0;
    ASSERT(4 * i + 4 <= file_->bytes().size(), "{} is cut short", path_.string());
    std::memcpy(&value, file_->bytes().data() + 4 * i, 4);
    return value;
  }
  // `count` floats from word `start`, and nothing but `behind` words behind them.
  std::vector<float> floats(std::size_t start, std::size_t count, std::size_t behind = 0) const {
    ASSERT(file_->bytes().size() == 4 * (start + count + behind), "{} has the wrong size", path_.string());
    std::vector<float> values(count);
    std::memcpy(values.data(), file_->bytes().data() + 4 * start, 4 * count);
    return values;
  }

 private:
  std::filesystem::path path_;
  base::Result<base::MappedFile> file_;
};

}  // namespace

std::filesystem::path family_directory(const std::string& family) {
  const auto packed = (carried() ? *carried() / "families" : std::filesystem::path(LLORCH_FAMILIES_DIR)) / family;
  return std::filesystem::exists(packed) ? packed : shared_families() / family;
}

std::filesystem::path shared_families() { return LLORCH_SOURCE_DIR "/../shared/data/golden2026"; }

std::vector<std::string> families_of_2026() {
  std::vector<std::string> families;
  for (const char* family :
       {"deepseek_v32", "deepseek_v4", "gemma4",      "glm4_moe",   "glm_moe_dsa", "granite_swa", "kimi_linear",
        "lfm2_moe",     "lfm3",        "llama4",      "mimo_v2",    "minimax_m2",  "ministral3",  "nemotron_h",
        "olmo3",        "qwen3_5",     "qwen3_5_moe", "qwen3_next", "seed_oss",    "smollm3"}) {
    if (std::filesystem::exists(shared_families() / family)) families.emplace_back(family);
  }
  return families;
}

std::filesystem::path embeddings_directory(const std::string& name) {
  return (carried() ? *carried() / "embeddings" : std::filesystem::path(LLORCH_EMBEDDINGS_DIR)) / name;
}

std::vector<Embedded> read_vectors(const std::filesystem::path& path) {
  const Words word(path);
  ASSERT(word(0) == 0x31454C47, "{} is no GLE1 file", path.string());
  const std::uint32_t width = word(2);
  std::vector<Embedded> inputs(word(1));
  std::size_t at = 3;
  for (Embedded& input : inputs) {
    for (const std::size_t end = at + 1 + word(at); ++at < end;) input.tokens.push_back(base::TokenId{word(at)});
    for (std::uint32_t i = 0; i < width; ++i) input.vector.push_back(std::bit_cast<float>(word(at++)));
  }
  return inputs;
}

std::optional<std::filesystem::path> family_model(const std::string& family, Format format) {
  const std::filesystem::path directory = family_directory(family);
  if (!std::filesystem::exists(directory)) return std::nullopt;
  if (format == Format::kHuggingFace) return directory;
  if (!std::filesystem::exists(directory / "model.gguf")) return std::nullopt;
  return directory / "model.gguf";
}

Hidden read_hidden(const std::filesystem::path& path) {
  const Words word(path);
  ASSERT(word(0) == 0x31484C47, "{} is no GLH1 file", path.string());
  Hidden hidden{.states = word(1), .rows = word(2), .width = word(3), .values = {}};
  hidden.values = word.floats(4, std::size_t{hidden.states} * hidden.rows * hidden.width);
  return hidden;
}

Golden read_golden(const std::filesystem::path& path) {
  const Words word(path);
  ASSERT(word(0) == 0x31444C47, "{} is no GLD1 file", path.string());
  Golden golden;
  const std::uint32_t count = word(1);
  golden.vocab = word(2);
  for (std::uint32_t i = 0; i < count; ++i) golden.tokens.push_back(base::TokenId{word(3 + i)});
  golden.logits = word.floats(3 + count, std::size_t{count} * golden.vocab);
  return golden;
}

Pixels read_pixels(const std::filesystem::path& path, std::size_t rows) {
  const Words word(path);
  ASSERT(word(0) == 0x31564C47, "{} is no GLV1 file", path.string());
  Pixels pixels;
  const std::size_t images = word(1);
  for (std::size_t i = 0; i < images; ++i)
    pixels.images.push_back({.frames = word(2 + 3 * i), .height = word(3 + 3 * i), .width = word(4 + 3 * i)});
  const std::size_t at = 2 + 3 * images;
  const std::size_t values = std::size_t{word(at)} * word(at + 1);
  pixels.patch_rows = word.floats(at + 2, values, 3 * rows);
  for (std::size_t i = 0; i < 3 * rows; ++i) pixels.positions.push_back(word(at + 2 + values + i));
  return pixels;
}

double relative_error(std::span<const float> got, std::span<const float> expected) {
  ASSERT(got.size() == expected.size(), "{} values, {} expected", got.size(), expected.size());
  double largest = 0;
  double scale = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::fabs(double{got[i]} - expected[i]);
    if (!(difference <= largest)) largest = std::isnan(difference) ? INFINITY : difference;
    scale = std::max(scale, std::fabs(double{expected[i]}));
  }
  return largest / scale;
}

std::size_t argmax(std::span<const float> row) {
  return static_cast<std::size_t>(std::ranges::max_element(row) - row.begin());
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

bool processor_has(const char* isa) {
  return engine::compute::cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1 << 20, .isa = isa})
      .has_value();
}

std::vector<std::string> processor_isas() {
  namespace host = engine::compute::cpu::host;
  std::vector<std::string> names;
  for (const host::Isa isa : host::kIsas)
    if (const std::string name(host::isa_name(isa)); processor_has(name.c_str())) names.push_back(name);
  return names;
}

Device::Device(const std::filesystem::path& model, const RunOptions& options) {
  auto backend = engine::compute::cpu::make_cpu_backend(
      {.threads_count = options.threads, .memory_budget_bytes = 1ULL << 30, .isa = options.isa});
  ASSERT(backend.has_value(), "{}", backend.has_value() ? "" : backend.error().message);
  backend_ = *std::move(backend);
  auto loaded = engine::inference::Engine::load(model,
                                                {.slots = options.slots,
                                                 .kv_dtype = options.kv_dtype,
                                                 .prefill_chunk = options.chunk,
                                                 .output_rows_max = options.chunk},
                                                *backend_);
  ASSERT(loaded.has_value(), "{}", loaded.has_value() ? "" : loaded.error().message);
  engine_ = *std::move(loaded);
}

std::vector<float> logits_of(const std::filesystem::path& model, std::span<const base::TokenId> tokens,
                             const RunOptions& options) {
  Device device(model, options);
  std::vector<float> logits;
  const auto result = device.engine().score(
      0, tokens, [&](std::size_t, std::span<const float> row) { logits.insert(logits.end(), row.begin(), row.end()); });
  ASSERT(result.has_value(), "{}", result.has_value() ? "" : result.error().message);
  return logits;
}

}  // namespace llorch::golden
