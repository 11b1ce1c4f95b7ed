// Arbitrary bytes as a tokenizer.json, the files beside it and a text: what is read has a blob that reads back, and what
// makes a tokenizer encodes any bytes and decodes what it encoded.
// Input: parts ended by 0x00 (text, tokenizer_config, generation_config), then tokenizer.json.
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/assert.h"
#include "engine/io/tokenizer_json/tokenizer_directory.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

using namespace llorch;
using namespace llorch::engine;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::array<std::string, 3> parts;
  for (std::string& part : parts) {
    const std::size_t end = rest.find('\0');
    part = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  io::tokenizer_json::TokenizerFiles files;
  files.tokenizer = rest;
  if (!parts[1].empty()) files.tokenizer_config = parts[1];
  if (!parts[2].empty()) files.generation_config = parts[2];
  auto read = io::tokenizer_json::parse_tokenizer_files(files);
  if (!read) {
    ASSERT(!read.error().message.empty());
    return 0;
  }
  if (const auto blob = text::serialize(*read))
    ASSERT(text::parse_tokenizer_data(std::as_bytes(std::span(*blob))).value() == *read);
  const auto tokenizer = text::Tokenizer::create(std::move(*read));
  if (!tokenizer) {
    ASSERT(!tokenizer.error().message.empty());
    return 0;
  }
  for (const bool parse_special : {false, true}) {
    const auto ids = tokenizer->encode(parts[0], {.add_special = true, .parse_special = parse_special});
    if (ids) (void)tokenizer->decode(*ids);
  }
  return 0;
}
