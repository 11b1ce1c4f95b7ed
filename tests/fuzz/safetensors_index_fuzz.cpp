// Arbitrary text as the index of a model in several safetensors files: no name that is accepted leaves the directory.
#include <cstdint>
#include <string_view>

#include "base/assert.h"
#include "engine/io/huggingface/safetensors.h"

using namespace llorch::engine;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto index = io::SafetensorsIndex::parse(json, "fuzz");
  if (!index) {
    ASSERT(!index.error().message.empty());
    return 0;
  }
  ASSERT(!index->files.empty() && !index->holds.empty());
  for (const auto& file : index->files) {
    ASSERT(file.find('/') == std::string::npos && file.find("..") == std::string::npos && file.size() <= 255);
    ASSERT(file.find('\0') == std::string::npos);
  }
  for (const auto& [tensor, file] : index->holds) ASSERT(!tensor.empty() && file < index->files.size());
  return 0;
}
