#include "engine/text/model/unicode_class.h"

#include <utf8proc.h>

#include <array>

#include "base/utf8.h"

namespace llorch::engine::text::model {
namespace {

constexpr std::array<CharClass, 128> ascii_classes() {
  std::array<CharClass, 128> classes{};
  for (int c = 0; c < 128; ++c) {
    CharClass& entry = classes[static_cast<std::size_t>(c)];
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      entry = CharClass::kLetter;
    } else if (c >= '0' && c <= '9') {
      entry = CharClass::kNumber;
    } else {
      entry = c == ' ' || (c >= 0x09 && c <= 0x0D) ? CharClass::kSpace : CharClass::kOther;
    }
  }
  return classes;
}
constexpr std::array<CharClass, 128> kAsciiClasses = ascii_classes();

// White_Space beyond ASCII (Unicode, PropList.txt).
bool is_space(char32_t c) {
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

CharClass classify(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return CharClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return CharClass::kNumber;
    default: return is_space(c) ? CharClass::kSpace : CharClass::kOther;
  }
}

}  // namespace

Char next_char(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {kAsciiClasses[first], 1};
  const base::Utf8Step step = base::next_code_point(text);
  if (step.status != base::Utf8Status::kComplete) return {CharClass::kOther, 1};
  return {classify(step.code_point), step.bytes};
}

}  // namespace llorch::engine::text::model
