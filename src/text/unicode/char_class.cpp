#include "text/unicode/char_class.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/utf8.h"

namespace llorch::text::unicode {
namespace {

struct Range {
  char32_t begin;
  CharSet category;
};

// The categories of Unicode 16 (category_ranges.inc says from where). Fixed here and not asked of a library: another
// version of it would change token ids.
constexpr Range kRanges[] = {
    {0x80, kOther},
#include "text/unicode/category_ranges.inc"
};

// [c >> 8]: the row that holds c's block's first character.
constexpr std::size_t kBlocks = 0x1100;
constexpr std::array<std::uint16_t, kBlocks + 1> block_rows() {
  std::array<std::uint16_t, kBlocks + 1> rows{};
  std::uint16_t row = 0;
  for (std::size_t block = 1; block < kBlocks; ++block) {
    while (row + 1u < std::size(kRanges) && kRanges[row + 1].begin <= block << 8) ++row;
    rows[block] = row;
  }
  rows[kBlocks] = static_cast<std::uint16_t>(std::size(kRanges) - 1);
  return rows;
}
constexpr auto kBlockRows = block_rows();

constexpr std::array<CharSet, 128> ascii_classes() {
  constexpr std::string_view kSymbols = "$+<=>^`|~";
  std::array<CharSet, 128> classes{};
  for (int c = 0; c < 128; ++c) {
    CharSet& entry = classes[static_cast<std::size_t>(c)];
    entry = kOther;
    if (c > 32 && c < 127) entry = kSymbols.find(static_cast<char>(c)) == kSymbols.npos ? kPunctuation : kSymbol;
    if (c >= 'a' && c <= 'z') entry = kLl;
    if (c >= 'A' && c <= 'Z') entry = kLu;
    if (c >= '0' && c <= '9') entry = kNumber;
    if (c == ' ' || (c >= 0x09 && c <= 0x0D)) entry = kSpace;
  }
  return classes;
}
constexpr std::array<CharSet, 128> kAsciiClasses = ascii_classes();

// White_Space beyond ASCII (Unicode, PropList.txt).
bool is_space(char32_t c) {
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

CharSet classify(char32_t c) {
  const std::size_t block = c >> 8;
  const Range* first = kRanges + kBlockRows[block];
  const Range* last = kRanges + kBlockRows[block + 1] + 1;
  const Range* after = std::upper_bound(first, last, c, [](char32_t value, const Range& r) { return value < r.begin; });
  const CharSet category = (after - 1)->category;
  return category == kOther && is_space(c) ? kSpace : category;
}

}  // namespace

Char next_char(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {kAsciiClasses[first], 1, first};
  const base::Utf8Step step = base::next_code_point(text);
  if (step.status != base::Utf8Status::kComplete) return {kOther, 1, kIllFormed};
  return {classify(step.code_point), step.bytes, step.code_point};
}

}  // namespace llorch::text::unicode
