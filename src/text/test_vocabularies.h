#pragma once
// Small vocabularies for tests.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer_data.h"

namespace llorch::text {

// As files spell a byte in byte-level BPE; printable ASCII only stands for itself.
inline std::string byte_bpe_spelling(unsigned byte) {
  const auto utf8 = [](unsigned c) {
    return c < 0x80 ? std::string(1, static_cast<char>(c))
                    : std::string{static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
  };
  unsigned next = 0x100;
  for (unsigned b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const unsigned c = printable ? b : next++;
    if (b == byte) return utf8(c);
  }
  return {};
}

inline std::string byte_bpe_spelling(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) out += byte_bpe_spelling(static_cast<unsigned char>(byte));
  return out;
}

struct MergePair {
  std::string left, right;  // as plain bytes
};

// Ids 0..255 are the bytes, then one token per merge (unless it exists), then `special`.
inline TokenizerData byte_bpe_data(const std::vector<MergePair>& merges,
                                   std::initializer_list<std::pair<std::string, TokenKind>> special = {}) {
  TokenizerData data;
  data.model = "gpt2";
  data.pre = "gpt-2";
  for (unsigned b = 0; b < 256; ++b) data.tokens.push_back(byte_bpe_spelling(b));
  for (const MergePair& merge : merges) {
    const std::string joined = byte_bpe_spelling(merge.left + merge.right);
    if (std::find(data.tokens.begin(), data.tokens.end(), joined) == data.tokens.end()) data.tokens.push_back(joined);
    data.merges.push_back(byte_bpe_spelling(merge.left) + " " + byte_bpe_spelling(merge.right));
  }
  data.kinds.assign(data.tokens.size(), TokenKind::kNormal);
  for (const auto& [text, kind] : special) {
    data.tokens.push_back(text);
    data.kinds.push_back(kind);
  }
  return data;
}

// Ids: 0 <unk>, 1 <s>, 2 </s>, 3..258 the bytes, then `pieces` (with U+2581 for a space), best score first.
inline TokenizerData spm_data(const std::vector<std::string>& pieces,
                              std::initializer_list<std::pair<std::string, TokenKind>> special = {}) {
  TokenizerData data;
  data.model = "llama";
  const auto add = [&](std::string text, TokenKind kind, double score) {
    data.tokens.push_back(std::move(text));
    data.kinds.push_back(kind);
    data.scores.push_back(score);
  };
  add("<unk>", TokenKind::kUnknown, 0);
  add("<s>", TokenKind::kControl, 0);
  add("</s>", TokenKind::kControl, 0);
  constexpr const char* kHex = "0123456789ABCDEF";
  for (unsigned b = 0; b < 256; ++b) add(std::string("<0x") + kHex[b / 16] + kHex[b % 16] + ">", TokenKind::kByte, 0);
  double score = 0;
  for (const std::string& piece : pieces) add(piece, TokenKind::kNormal, --score);
  for (const auto& [text, kind] : special) add(text, kind, 0);
  data.unknown = TokenId{0};
  data.bos = TokenId{1};
  data.eos = TokenId{2};
  return data;
}

inline std::vector<std::uint32_t> numbers(const std::vector<TokenId>& ids) {
  std::vector<std::uint32_t> out;
  for (const TokenId id : ids) out.push_back(index(id));
  return out;
}

}  // namespace llorch::text
