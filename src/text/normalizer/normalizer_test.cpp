#include "text/normalizer/normalizer.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace llorch::text::normalizer {
namespace {

const std::vector<std::pair<NormalizerKind, int>> kForms{{NormalizerKind::kNfc, UTF8PROC_COMPOSE},
                                                         {NormalizerKind::kNfd, UTF8PROC_DECOMPOSE},
                                                         {NormalizerKind::kNfkc, UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
                                                         {NormalizerKind::kNfkd, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};

std::string normal(NormalizerKind kind, std::string_view text) {
  const std::vector<NormalizerStep> steps{{.kind = kind}};
  TextBudget budget = TextBudget::of_text(text.size());
  return Normalizer::create(steps).value().apply(text, budget).value();
}

// What utf8proc makes of well-formed text by itself.
std::string reference(std::string_view text, int form) {
  utf8proc_uint8_t* made = nullptr;
  const auto bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &made, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | form));
  EXPECT_GE(bytes, 0);
  std::string out(reinterpret_cast<const char*>(made), bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
  std::free(made);  // NOLINT(cppcoreguidelines-no-malloc): utf8proc's own
  return out;
}

std::string utf8(char32_t c) {
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  return {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count)};
}

std::string repeated(std::string_view unit, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += unit;
  return out;
}

TEST(Normalizer, NormalFormsAreThoseOfUtf8proc) {
  // Letters that compose, parts of syllables, marks of twelve classes, marks that are two, what grows or is never composed again.
  const char32_t code_points[] = {
      'a',    'e',    's',    0xC5,   0x1E69, 0x1E9B,  0x212B,  0x2126,  0x1100,  0x1161,  0x11A8,  0xAC00,
      0xAC01, 0xD7A3, 0x301,  0x307,  0x308,  0x316,   0x323,   0x31B,   0x327,   0x328,   0x334,   0x338,
      0x345,  0x35C,  0x34F,  0x344,  0x93C,  0x958,   0x915,   0x94D,   0x3099,  0x304B,  0x5B0,   0x5BC,
      0x5D0,  0xFB2C, 0x651,  0x64E,  0xF71,  0xF73,   0xF75,   0xF81,   0xB47,   0xB3E,   0xFDFA,  0xFB01,
      0xFF76, 0xFF9E, 0x4E2D, 0xF900, 0x2460, 0x1D15E, 0x1D165, 0x1D16E, 0x11099, 0x110BA, 0x2F800, 0x1F600};
  const std::string_view ill_formed[] = {"\xFF", "\x80", "\xC3", "\xED\xA0\x80"};
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the same strings every time
  const auto below = [&](std::size_t end) { return random() % end; };
  const auto any = [&]() -> char32_t {
    if (below(16) != 0) return code_points[below(std::size(code_points))];
    const auto c = static_cast<char32_t>(below(0x110000));
    return c >= 0xD800 && c < 0xE000 ? U'x' : c;
  };
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    std::vector<std::string> expected(kForms.size());
    for (std::size_t stretch = below(8) == 0 ? 3 : 1; stretch > 0; --stretch) {
      std::string part;
      for (std::size_t length = 1 + below(24); length > 0; --length) part += utf8(any());
      const std::string_view between = stretch > 1 ? ill_formed[below(std::size(ill_formed))] : "";
      text.append(part).append(between);
      for (std::size_t f = 0; f < kForms.size(); ++f)
        expected[f].append(reference(part, kForms[f].second)).append(between);
    }
    for (std::size_t f = 0; f < kForms.size(); ++f) {
      ASSERT_EQ(normal(kForms[f].first, text), expected[f]) << "form " << f << " of " << text;
    }
  }
}

// In order of their classes, 220 before 230. Where each passes each by a swap, that takes minutes; of a prompt it takes hours.
TEST(Normalizer, ManyMarksAreOrdered) {
  const std::string above = repeated(utf8(0x301), 100'000), below = repeated(utf8(0x316), 100'000);
  for (const auto& [kind, form] : kForms) EXPECT_TRUE(normal(kind, above + below) == below + above) << form;
  const std::string e_acute = utf8(0xE9), rest = above.substr(2);
  EXPECT_TRUE(normal(NormalizerKind::kNfc, "e" + above + below) == e_acute + below + rest);
  EXPECT_TRUE(normal(NormalizerKind::kNfd, e_acute + rest + below) == "e" + below + above);
}

}  // namespace
}  // namespace llorch::text::normalizer
