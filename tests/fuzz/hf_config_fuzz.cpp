// Arbitrary text as config.json, every key read in every way, nested objects too.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/assert.h"
#include "engine/io/huggingface/hf_config.h"

using namespace llorch::engine;

namespace {

void read_every_way(const io::HfConfig& config) {
  for (const std::string_view key : config.keys()) {
    const io::HfKind kind = config.kind(key);
    ASSERT(kind != io::HfKind::kAbsent);
    ASSERT(config.contains(key) == (kind != io::HfKind::kNull));
    const auto u64 = config.u64(key);
    const auto u32 = config.u32(key);
    ASSERT(!u32 || *u32 == *u64);
    const auto f32 = config.f32(key);
    ASSERT(!f32 || std::isfinite(*f32));
    const auto wide = config.f32(key, io::HfConfig::Infinities::kAccept);
    ASSERT(!wide || !std::isnan(*wide));
    ASSERT(!wide || kind == io::HfKind::kNumber);
    (void)config.boolean(key);
    (void)config.string(key);
    (void)config.u32_list(key);
    (void)config.f32_list(key);
    (void)config.f32_list(key, io::HfConfig::Infinities::kAccept);
    (void)config.boolean_list(key);
    (void)config.string_list(key);
    const auto inner = config.object(key);
    ASSERT(inner.has_value() == (kind == io::HfKind::kObject));
    if (inner) read_every_way(*inner);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto config = io::HfConfig::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (config) {
    read_every_way(*config);
  } else {
    ASSERT(!config.error().message.empty());
  }
  return 0;
}
