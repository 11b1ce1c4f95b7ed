#include "golden_support.h"

#include <cstring>

#include "base/assert.h"
#include "base/file.h"

namespace llorch::golden {

std::filesystem::path repository() { return LLORCH_SOURCE_DIR; }

std::filesystem::path demo_model(const std::string& type) {
  const std::string name = "fairytale-5m-" + type + ".gguf";
  return repository() / (type == "q4_0" ? "tests/golden/demo" : "models/demo") / name;
}

Golden read_golden(const std::filesystem::path& path) {
  const auto file = base::MappedFile::open(path);
  ASSERT(file.has_value(), "{}: {}", path.string(), file.has_value() ? "" : file.error().message);
  const std::span<const std::byte> bytes = file->bytes();
  const auto word = [&](std::size_t i) {
    std::uint32_t value = 0;
    ASSERT(4 * i + 4 <= bytes.size(), "{} is cut short", path.string());
    std::memcpy(&value, bytes.data() + 4 * i, 4);
    return value;
  };
  ASSERT(word(0) == 0x31444C47, "{} is no GLD1 file", path.string());
  Golden golden;
  const std::uint32_t count = word(1);
  golden.vocab = word(2);
  for (std::uint32_t i = 0; i < count; ++i) golden.tokens.push_back(base::TokenId{word(3 + i)});
  golden.logits.resize(std::size_t{count} * golden.vocab);
  const std::size_t start = 12 + 4 * std::size_t{count};
  ASSERT(bytes.size() == start + golden.logits.size() * 4, "{} has the wrong size", path.string());
  std::memcpy(golden.logits.data(), bytes.data() + start, golden.logits.size() * 4);
  return golden;
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
