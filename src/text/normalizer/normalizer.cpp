#include "text/normalizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/assert.h"
#include "text/unicode/char_class.h"

namespace llorch::text::normalizer {
namespace {

using unicode::Char;
using unicode::next_char;

// Calls one(stretch) for every longest part without and keep(byte) for every byte of ill-formed UTF-8.
template <class OnStretch, class OnByte>
void for_each_stretch(std::string_view text, const OnStretch& on_stretch, const OnByte& on_byte) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const Char c = next_char(text.substr(i));
    if (c.code_point == unicode::kIllFormed) {
      if (i > begin) on_stretch(text.substr(begin, i - begin));
      on_byte(text[i]);
      begin = i + 1;
    }
    i += c.bytes;
  }
  if (begin < text.size()) on_stretch(text.substr(begin));
}

void append_normal_form(std::string_view text, utf8proc_option_t form, std::string& out) {
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  ASSERT(bytes >= 0, "utf8proc={} of {} bytes", bytes, text.size());  // well-formed text only fails for want of memory
  out.append(reinterpret_cast<const char*>(result), static_cast<std::size_t>(bytes));
}

std::string normal_form(std::string_view text, utf8proc_option_t form) {
  std::string out;
  for_each_stretch(
      text, [&](std::string_view stretch) { append_normal_form(stretch, form, out); }, [&](char byte) { out += byte; });
  return out;
}

void append_utf8(char32_t c, std::string& out) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes.data());
  out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(count));
}

std::string lower_case(std::string_view text) {
  constexpr char32_t kCapitalIWithDot = 0x130;  // the one letter whose lower case is two characters
  std::string out;
  while (!text.empty()) {
    const Char c = next_char(text);
    if (c.code_point == unicode::kIllFormed) {
      out += text[0];
    } else if (c.code_point == kCapitalIWithDot) {
      out += "i\xCC\x87";
    } else {
      append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code_point))), out);
    }
    text.remove_prefix(c.bytes);
  }
  return out;
}

// Controls, formats and private use; a tab and line ends are spaces to BERT's cleaning.
bool is_cleaned_away(const Char& c) {
  if (c.code_point == 0 || c.code_point == 0xFFFD) return true;
  if (c.code_point == '\t' || c.code_point == '\n' || c.code_point == '\r') return false;
  if (c.code_point == unicode::kIllFormed) return false;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c.code_point));
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
}

std::string cleaned(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Char c = next_char(text);
    if (c.char_class == unicode::kSpace && !is_cleaned_away(c)) {
      out += ' ';
    } else if (!is_cleaned_away(c)) {
      out += text.substr(0, c.bytes);
    }
    text.remove_prefix(c.bytes);
  }
  return out;
}

// The blocks that BERT's Chinese vocabularies name.
bool is_cjk_ideograph(char32_t c) {
  constexpr std::array<std::pair<char32_t, char32_t>, 8> kBlocks{{{0x4E00, 0x9FFF},
                                                                  {0x3400, 0x4DBF},
                                                                  {0x20000, 0x2A6DF},
                                                                  {0x2A700, 0x2B73F},
                                                                  {0x2B740, 0x2B81F},
                                                                  {0x2B920, 0x2CEAF},
                                                                  {0xF900, 0xFAFF},
                                                                  {0x2F800, 0x2FA1F}}};
  return std::any_of(kBlocks.begin(), kBlocks.end(), [c](const auto& b) { return b.first <= c && c <= b.second; });
}

std::string spaced_cjk(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Char c = next_char(text);
    const bool spaced = is_cjk_ideograph(c.code_point);
    if (spaced) out += ' ';
    out += text.substr(0, c.bytes);
    if (spaced) out += ' ';
    text.remove_prefix(c.bytes);
  }
  return out;
}

std::string without_nonspacing(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Char c = next_char(text);
    const bool dropped = c.char_class == unicode::kMark &&
                         utf8proc_category(static_cast<utf8proc_int32_t>(c.code_point)) == UTF8PROC_CATEGORY_MN;
    if (!dropped) out += text.substr(0, c.bytes);
    text.remove_prefix(c.bytes);
  }
  return out;
}

struct Sides {
  bool left, right;
};

std::string stripped(std::string_view text, Sides sides) {
  std::size_t begin = text.size(), end = 0;  // of what is no space
  for (std::size_t i = 0; i < text.size();) {
    const Char c = next_char(text.substr(i));
    if (c.char_class != unicode::kSpace) {
      begin = std::min(begin, i);
      end = i + c.bytes;
    }
    i += c.bytes;
  }
  if (begin == text.size()) return sides.left || sides.right ? std::string() : std::string(text);
  if (!sides.left) begin = 0;
  if (!sides.right) end = text.size();
  return std::string(text.substr(begin, end - begin));
}

std::string replaced(std::string_view text, const pre_tokenizer::Pattern& pattern, std::string_view by) {
  const std::string searched = pre_tokenizer::well_formed(text);
  std::string out;
  std::size_t done = 0;
  while (const auto match = pattern.find(searched, done)) {
    out += text.substr(done, match->begin - done);
    out += by;
    done = match->end;
  }
  return out += text.substr(done);
}

}  // namespace

base::Result<Normalizer> Normalizer::create(std::span<const NormalizerStep> steps) {
  Normalizer normalizer;
  for (const NormalizerStep& step : steps) {
    Step made{step, std::nullopt};
    if (step.kind == NormalizerKind::kReplace) made.pattern = TRY(pre_tokenizer::Pattern::create(step.pattern));
    normalizer.steps_.push_back(std::move(made));
  }
  return normalizer;
}

std::string Normalizer::apply(std::string_view raw) const {
  constexpr auto kCompat = UTF8PROC_COMPAT;
  std::string text(raw);
  for (const Step& step : steps_) {
    switch (step.data.kind) {
      case NormalizerKind::kNfc: text = normal_form(text, UTF8PROC_COMPOSE); break;
      case NormalizerKind::kNfd: text = normal_form(text, UTF8PROC_DECOMPOSE); break;
      case NormalizerKind::kNfkc:
        text = normal_form(text, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | kCompat));
        break;
      case NormalizerKind::kNfkd:
        text = normal_form(text, static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | kCompat));
        break;
      case NormalizerKind::kLowercase: text = lower_case(text); break;
      case NormalizerKind::kStrip: text = stripped(text, {.left = step.data.left, .right = step.data.right}); break;
      case NormalizerKind::kReplace: text = replaced(text, *step.pattern, step.data.text); break;
      case NormalizerKind::kPrepend:
        if (!text.empty()) text = step.data.text + text;
        break;
      case NormalizerKind::kClean: text = cleaned(text); break;
      case NormalizerKind::kSpaceCjk: text = spaced_cjk(text); break;
      case NormalizerKind::kDropNonspacing: text = without_nonspacing(text); break;
    }
  }
  return text;
}

}  // namespace llorch::text::normalizer
