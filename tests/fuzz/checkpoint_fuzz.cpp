// A config.json, a zero byte and a safetensors file, all of them arbitrary: joining the parts of quantized weights must neither crash
// nor read out of bounds, and what a joined tensor says of its size it has, whole and in pieces.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/assert.h"
#include "engine/io/model_files.h"

using namespace llorch::engine;

namespace {

// As a backend reads: blocks, from anywhere.
void check_pieces(const io::FileTensor& tensor, std::span<const std::byte> whole) {
  const std::size_t block = io::stored_type_info(tensor.type).block_bytes, blocks = whole.size() / block;
  const std::size_t from = blocks / 3 * block, count = (blocks - blocks / 3 + 1) / 2 * block;
  std::vector<std::byte> piece(count);
  const auto read = tensor.data.read(from, piece);
  ASSERT(read && std::ranges::equal(piece, whole.subspan(from, count)), "a piece is not what the whole has there");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), size);
  auto config = io::HfConfig::parse(input.substr(0, end), "config.json");
  if (!config) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  auto file = io::SafetensorsFile::parse(bytes.subspan(std::min(end + 1, size)), "fuzz");
  if (!file) return 0;
  std::vector<io::SafetensorsFile> files;
  files.push_back(std::move(*file));
  const auto model = io::ModelFiles::from_hugging_face(std::move(*config), std::move(files));
  if (!model) {
    ASSERT(!model.error().message.empty());
    return 0;
  }
  for (const io::FileTensor& tensor : model->tensors()) {
    ASSERT(model->find_tensor(tensor.name) == &tensor);
    ASSERT(!io::describe(tensor).empty());
    if (const auto whole = tensor.data.read_all()) check_pieces(tensor, *whole);
  }
  return 0;
}
