// Arbitrary bytes as a safetensors file: parsing must neither crash nor read out of bounds, and what is accepted must tile
// the data exactly.
#include <algorithm>
#include <cstdint>
#include <span>

#include "base/assert.h"
#include "engine/io/huggingface/safetensors.h"

using namespace llorch::engine;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = io::SafetensorsFile::parse(bytes, "fuzz");
  if (!file) {
    ASSERT(!file.error().message.empty());
    return 0;
  }
  std::uint64_t tensor_bytes = 0;
  unsigned sum = 0;
  std::uint64_t end = 0;  // of the data so far; 0 before the first
  for (const auto& tensor : file->tensors()) {
    ASSERT(file->find_tensor(tensor.name) == &tensor);
    ASSERT(end == 0 || tensor.data.offset() == end);
    ASSERT(tensor.elements_count() * io::stored_type_info(tensor.type).block_bytes == tensor.data.size());
    ASSERT(!io::describe(tensor).empty());
    end = tensor.data.offset() + tensor.data.size();
    tensor_bytes += tensor.data.size();
    const auto stored = tensor.data.read_all();
    ASSERT(stored && std::ranges::equal(*stored, bytes.subspan(tensor.data.offset(), tensor.data.size())));
    for (const auto byte : *stored) sum += static_cast<unsigned>(byte);
  }
  ASSERT(end == 0 || end == bytes.size());
  ASSERT(tensor_bytes <= bytes.size());
  volatile unsigned sink = sum;
  (void)sink;
  return 0;
}
