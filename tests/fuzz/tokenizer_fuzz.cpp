// Arbitrary bytes as a tokenizer blob and a text: parsing is canonical, and what makes a tokenizer encodes any bytes,
// decodes what it encoded, and streams well-formed text; no text spells a token of fill in the middle.
// Input: u16 n, n bytes of text, the blob.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/assert.h"
#include "base/utf8.h"
#include "text/infill/infill.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

namespace {

using namespace llorch;

void encode_every_way(const text::Tokenizer& tokenizer, std::string_view input) {
  for (const bool parse_special : {false, true}) {
    const auto ids = tokenizer.encode(input, {.add_special = true, .parse_special = parse_special});
    if (!ids) {
      ASSERT(!ids.error().message.empty());
      continue;
    }
    const std::string stop(input.substr(0, 2));
    text::TextStream::Options options;
    if (!stop.empty()) options.stop_strings.push_back(stop);
    text::TextStream stream(tokenizer, std::move(options));
    std::string shown;
    for (const text::TokenId id : *ids) {
      const text::TextPiece piece = stream.push(id);
      shown += piece.text;
    }
    shown += stream.finish().text;
    ASSERT(stop.empty() || shown.find(stop) == std::string::npos);
    ASSERT(!llorch::base::is_valid_utf8(stop) || llorch::base::is_valid_utf8(shown));
    (void)tokenizer.decode(*ids);
  }
}

// Each role's token is there as often as one prompt has it, whatever the texts spell.
void fill_in(const text::Infill& infill, const text::InfillTokens& reserved, const text::Tokenizer& tokenizer,
             std::string_view input) {
  const auto empty = infill.prompt(tokenizer, {.prefix = "", .suffix = ""});
  const auto filled = infill.prompt(tokenizer, {.prefix = input, .suffix = input});
  if (!empty || !filled) return;
  for (const auto& token : {reserved.prefix, reserved.suffix, reserved.middle, reserved.pad, reserved.separator}) {
    ASSERT(!token || std::ranges::count(*filled, *token) == std::ranges::count(*empty, *token));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t text_bytes = std::min<std::size_t>(data[0] | data[1] << 8, size - 2);
  const std::string_view input = all.substr(2, text_bytes), blob = all.substr(2 + text_bytes);
  auto parsed = text::parse_tokenizer_data(std::as_bytes(std::span(blob.data(), blob.size())));
  if (!parsed) {
    ASSERT(!parsed.error().message.empty());
    return 0;
  }
  ASSERT(text::serialize(*parsed).value() == blob);
  const text::InfillTokens reserved = text::infill_tokens(*parsed);
  const auto infill = text::Infill::of(*parsed);
  const auto tokenizer = text::Tokenizer::create(std::move(*parsed));
  if (!tokenizer) {
    ASSERT(!tokenizer.error().message.empty());
    return 0;
  }
  encode_every_way(*tokenizer, input);
  if (infill) fill_in(*infill, reserved, *tokenizer, input);
  return 0;
}
