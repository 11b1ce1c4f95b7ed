// Arbitrary bytes as a model file: parsing and every getter must neither crash nor read out of bounds, and what is
// accepted must keep the reader's promises (in bounds, aligned, unique, no overlap).
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/assert.h"
#include "engine/io/gguf.h"

namespace {

using namespace llorch::engine;

void read_every_way(const io::GgufFile& file) {
  for (const auto& entry : file.metadata()) {
    ASSERT(file.find(entry.key) == &entry.value);
    (void)io::to_text(entry.value);
    (void)file.u64(entry.key);
    (void)file.u32(entry.key);
    (void)file.f32(entry.key);
    (void)file.boolean(entry.key);
    (void)file.string(entry.key);
    (void)file.string_array(entry.key);
    (void)file.f32_array(entry.key);
    (void)file.i32_array(entry.key);
  }
}

void check_tensors(const io::GgufFile& file, std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const auto& tensor : file.tensors()) {
    ASSERT(file.find_tensor(tensor.name) == &tensor);
    ASSERT(tensor.data.offset() % file.alignment() == 0);
    const auto data = tensor.data.read_all();
    ASSERT(data && std::ranges::equal(*data, bytes.subspan(tensor.data.offset(), tensor.data.size())));
    for (const auto byte : *data) sum += static_cast<unsigned>(byte);
    for (const auto& other : file.tensors()) {
      ASSERT(&other == &tensor || other.data.offset() >= tensor.data.offset() + tensor.data.size() ||
             other.data.offset() + other.data.size() <= tensor.data.offset());
    }
  }
  volatile unsigned sink = sum;
  (void)sink;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = io::GgufFile::parse(bytes, "fuzz");
  if (!file) {
    ASSERT(!file.error().message.empty());
    return 0;
  }
  read_every_way(*file);
  check_tensors(*file, bytes);
  return 0;
}
