#include "text/normalizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

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

// A text that a step makes. It grows up to `bytes_max` and then stands still.
class Output {
 public:
  explicit Output(std::size_t bytes_max) : bytes_max_(bytes_max) {}
  bool has_room(std::size_t bytes) {
    if (bytes > bytes_max_ - text_.size()) is_over_ = true;
    return !is_over_;
  }
  void add(std::string_view text) {
    if (has_room(text.size())) text_ += text;
  }
  bool is_over() const { return is_over_; }
  std::string take() { return std::move(text_); }

 private:
  std::size_t bytes_max_;
  bool is_over_ = false;
  std::string text_;
};

utf8proc_option_t with_stable(utf8proc_option_t form) { return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | form); }

// Decomposes the characters of well-formed `text`. Writes code points to `out` as far as there is room, and returns the number of all.
std::size_t decompose(std::string_view text, utf8proc_option_t form, std::span<utf8proc_int32_t> out) {
  std::size_t count = 0;
  while (!text.empty()) {
    const Char c = next_char(text);
    const std::span<utf8proc_int32_t> room = out.subspan(std::min(count, out.size()));
    int unused = UTF8PROC_BOUNDCLASS_START;  // asked for by no option here
    const utf8proc_ssize_t made =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code_point), room.data(),
                                static_cast<utf8proc_ssize_t>(room.size()), with_stable(form), &unused);
    // Nothing fails of a code point.
    ASSERT(made >= 0, "utf8proc={} of {}", made, static_cast<std::uint32_t>(c.code_point));
    count += static_cast<std::size_t>(made);
    text.remove_prefix(c.bytes);
  }
  return count;
}

// Orders each run of marks by their classes. utf8proc_decompose() does it by swapping neighbours, which takes hours for a prompt of marks.
void order_marks(std::span<utf8proc_int32_t> code_points) {
  const auto mark_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  const auto is_mark = [&](utf8proc_int32_t c) { return mark_class(c) != 0; };
  for (auto begin = code_points.begin(); begin != code_points.end();) {
    begin = std::find_if(begin, code_points.end(), is_mark);
    const auto end = std::find_if_not(begin, code_points.end(), is_mark);
    const std::span<utf8proc_int32_t> marks(begin, end);
    if (!std::ranges::is_sorted(marks, {}, mark_class)) std::ranges::stable_sort(marks, {}, mark_class);
    begin = end;
  }
}

void add_normal_form(std::string_view text, utf8proc_option_t form, Output& out) {
  const std::size_t count = decompose(text, form, {});
  // Each code point has a byte at least, and those that are composed again came of more.
  if (!out.has_room(count)) return;
  std::vector<utf8proc_int32_t> code_points(count + 1);
  decompose(text, form, {code_points.data(), count});
  order_marks({code_points.data(), count});
  const utf8proc_ssize_t result =
      utf8proc_reencode(code_points.data(), static_cast<utf8proc_ssize_t>(count), with_stable(form));
  ASSERT(result >= 0, "utf8proc={} of {} code points", result, count);
  out.add({reinterpret_cast<const char*>(code_points.data()), static_cast<std::size_t>(result)});
}

void normal_form(std::string_view text, utf8proc_option_t form, Output& out) {
  for_each_stretch(
      text, [&](std::string_view stretch) { add_normal_form(stretch, form, out); },
      [&](char byte) {
        out.add({&byte, 1});
      });
}

void add_utf8(char32_t c, Output& out) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes.data());
  out.add({reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(count)});
}

void lower_case(std::string_view text, Output& out) {
  constexpr char32_t kCapitalIWithDot = 0x130;  // the one letter whose lower case is two characters
  while (!text.empty()) {
    const Char c = next_char(text);
    if (c.code_point == unicode::kIllFormed) {
      out.add(text.substr(0, 1));
    } else if (c.code_point == kCapitalIWithDot) {
      out.add("i\xCC\x87");
    } else {
      add_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code_point))), out);
    }
    text.remove_prefix(c.bytes);
  }
}

// Controls, formats and private use; a tab and line ends are spaces to BERT's cleaning.
bool is_cleaned_away(const Char& c) {
  if (c.code_point == 0 || c.code_point == 0xFFFD) return true;
  if (c.code_point == '\t' || c.code_point == '\n' || c.code_point == '\r') return false;
  if (c.code_point == unicode::kIllFormed) return false;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c.code_point));
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
}

void clean(std::string_view text, Output& out) {
  while (!text.empty()) {
    const Char c = next_char(text);
    if (c.char_class == unicode::kSpace && !is_cleaned_away(c)) {
      out.add(" ");
    } else if (!is_cleaned_away(c)) {
      out.add(text.substr(0, c.bytes));
    }
    text.remove_prefix(c.bytes);
  }
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

void space_cjk(std::string_view text, Output& out) {
  while (!text.empty()) {
    const Char c = next_char(text);
    const bool spaced = is_cjk_ideograph(c.code_point);
    if (spaced) out.add(" ");
    out.add(text.substr(0, c.bytes));
    if (spaced) out.add(" ");
    text.remove_prefix(c.bytes);
  }
}

void drop_nonspacing(std::string_view text, Output& out) {
  while (!text.empty()) {
    const Char c = next_char(text);
    const bool dropped = c.char_class == unicode::kMark &&
                         utf8proc_category(static_cast<utf8proc_int32_t>(c.code_point)) == UTF8PROC_CATEGORY_MN;
    if (!dropped) out.add(text.substr(0, c.bytes));
    text.remove_prefix(c.bytes);
  }
}

struct Sides {
  bool left, right;
};

std::string_view stripped(std::string_view text, Sides sides) {
  std::size_t begin = text.size(), end = 0;  // of what is no space
  for (std::size_t i = 0; i < text.size();) {
    const Char c = next_char(text.substr(i));
    if (c.char_class != unicode::kSpace) {
      begin = std::min(begin, i);
      end = i + c.bytes;
    }
    i += c.bytes;
  }
  if (begin == text.size()) return sides.left || sides.right ? std::string_view() : text;
  if (!sides.left) begin = 0;
  if (!sides.right) end = text.size();
  return text.substr(begin, end - begin);
}

base::Result<> replace(std::string_view text, const pre_tokenizer::Pattern& pattern, std::string_view by,
                       TextBudget& budget, Output& out) {
  const std::string searched = pre_tokenizer::well_formed(text);
  std::size_t done = 0;
  while (const auto match = TRY(pattern.find(searched, done, budget))) {
    out.add(text.substr(done, match->begin - done));
    out.add(by);
    if (out.is_over()) return {};
    done = match->end;
  }
  out.add(text.substr(done));
  return {};
}

// What a step takes in the time of one of a pattern: a normal form looks at each character four times, the others once or less. Matches
// of a Replace come on top: its pattern counts them.
std::uint64_t steps_of(NormalizerKind kind, std::size_t bytes) {
  switch (kind) {
    case NormalizerKind::kNfc:
    case NormalizerKind::kNfd:
    case NormalizerKind::kNfkc:
    case NormalizerKind::kNfkd: return 1 + 2 * std::uint64_t{bytes};
    case NormalizerKind::kLowercase:
    case NormalizerKind::kClean:
    case NormalizerKind::kSpaceCjk:
    case NormalizerKind::kDropNonspacing: return 1 + bytes / 2;
    case NormalizerKind::kStrip:
    case NormalizerKind::kReplace:
    case NormalizerKind::kPrepend: break;
  }
  return 1 + bytes / 8;
}

base::Result<> apply_step(const NormalizerStep& step, const std::optional<pre_tokenizer::Pattern>& pattern,
                          std::string_view text, TextBudget& budget, Output& out) {
  constexpr auto kCompat = UTF8PROC_COMPAT;
  switch (step.kind) {
    case NormalizerKind::kNfc: normal_form(text, UTF8PROC_COMPOSE, out); break;
    case NormalizerKind::kNfd: normal_form(text, UTF8PROC_DECOMPOSE, out); break;
    case NormalizerKind::kNfkc:
      normal_form(text, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | kCompat), out);
      break;
    case NormalizerKind::kNfkd:
      normal_form(text, static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | kCompat), out);
      break;
    case NormalizerKind::kLowercase: lower_case(text, out); break;
    case NormalizerKind::kStrip: out.add(stripped(text, {.left = step.left, .right = step.right})); break;
    case NormalizerKind::kReplace: return replace(text, *pattern, step.text, budget, out);
    case NormalizerKind::kPrepend:
      if (!text.empty()) out.add(step.text);
      out.add(text);
      break;
    case NormalizerKind::kClean: clean(text, out); break;
    case NormalizerKind::kSpaceCjk: space_cjk(text, out); break;
    case NormalizerKind::kDropNonspacing: drop_nonspacing(text, out); break;
  }
  return {};
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

base::Result<std::string> Normalizer::apply(std::string_view raw, TextBudget& budget) const {
  std::string text(raw);
  for (const Step& step : steps_) {
    if (!budget.spend_steps(steps_of(step.data.kind, text.size()))) return base::fail(budget.too_slow());
    Output out(budget.bytes_max(text.size()));
    TRY(apply_step(step.data, step.pattern, text, budget, out));
    if (out.is_over()) return base::fail(budget.too_long());
    std::string made = out.take();
    budget.spend_growth(text.size(), made.size());
    text = std::move(made);
  }
  return text;
}

}  // namespace llorch::text::normalizer
