#include "text/pre_tokenizer/regex.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <string>

#include "base/assert.h"

namespace llorch::text::pre_tokenizer {
namespace {

constexpr std::uint32_t kHeapLimitKib = 64u << 10;
constexpr std::size_t kPatternBytesMax = 1u << 14;
constexpr std::uint32_t kNestingMax = 32;
// A repetition that falls short of its least count shows nobody how far it went, so that count is small.
constexpr int kLeastCountMax = 32;
// A set is compared range by range: a step of a long pattern counts once more for each so many bytes of it.
constexpr std::size_t kPatternBytesPerStep = 1u << 10;

// What \s, \w and \d are there, inside brackets. PCRE2 counts U+180E as a space and no marks as word characters. The six
// numbers of Latin-1 are a habit of Oniguruma's.
constexpr std::string_view kSpaceSet = R"(\p{Z}\x{9}-\x{D}\x{85})";
constexpr std::string_view kWordSet = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
constexpr std::string_view kDigitSet = R"(\p{Nd})";

// Escapes that mean the same in both.
constexpr std::string_view kSameEscapes = R"(\/.^$|()[]{}*+?-'"!#%&,:;<=>@_`~ rntfe0)";

base::Error refuse(std::string_view why) {
  return {base::ErrorCode::kUnsupportedTokenizer,
          fmt::format("a pattern of the tokenizer {}; no exact translation exists here: use the model's GGUF, whose "
                      "pre-tokenizer has a name",
                      why),
          {}};
}

// Whether a property's name is a script's.
bool is_script(std::string_view name) {
  const std::string pattern = fmt::format("\\p{{sc:{}}}", name);
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code_8* code = pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(pattern.data()), pattern.size(),
                                       PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr);
  pcre2_code_free_8(code);
  return code != nullptr;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : rest_(pattern) {}

  base::Result<std::string> run() {
    while (!rest_.empty()) {
      if (rest_[0] == '\\') {
        TRY(escape());
      } else if (in_set_) {
        TRY(set_char());
      } else {
        TRY(plain_char());
      }
    }
    return std::move(out_);
  }

 private:
  void take(std::size_t bytes) {
    out_ += rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
  }

  base::Result<> set_char() {
    if (rest_.starts_with("&&") || rest_[0] == '[') return base::fail(refuse("uses set operations"));
    if (rest_[0] == ']') in_set_ = false;
    take(1);
    return {};
  }

  base::Result<> plain_char() {
    if (rest_.starts_with("(?") && !starts_known_group()) return base::fail(refuse("uses an unusual group"));
    if (rest_.starts_with("(*")) return base::fail(refuse("uses a verb"));
    // {n,m}+ is possessive in one and a repetition of a repetition in the other.
    if (rest_.starts_with("}+")) return base::fail(refuse("repeats a counted repetition"));
    if (rest_[0] == '{' && least_count() > kLeastCountMax) return base::fail(refuse("wants more than 32 repetitions"));
    if (rest_[0] == '[') {
      in_set_ = true;
      // A ']' that stands first would be a member.
      take(rest_.starts_with("[^") ? 2 : 1);
      if (rest_.starts_with(']')) return base::fail(refuse("has a set that begins with ]"));
      return {};
    }
    take(1);
    return {};
  }

  int least_count() const {
    int count = 0;
    for (std::size_t i = 1; i < rest_.size() && rest_[i] >= '0' && rest_[i] <= '9' && count <= kLeastCountMax; ++i) {
      count = count * 10 + (rest_[i] - '0');
    }
    return count;
  }

  bool starts_known_group() const {
    constexpr auto kGroups = std::to_array<std::string_view>({"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"});
    for (const std::string_view group : kGroups) {
      if (rest_.starts_with(group)) return true;
    }
    return false;
  }

  base::Result<> escape() {
    if (rest_.size() < 2) return base::fail(refuse("ends in a backslash"));
    const char c = rest_[1];
    switch (c) {
      case 's': return put_set(kSpaceSet, false);
      case 'S': return put_set(kSpaceSet, true);
      case 'w': return put_set(kWordSet, false);
      case 'W': return put_set(kWordSet, true);
      case 'd': return put_set(kDigitSet, false);
      case 'D': return put_set(kDigitSet, true);
      case 'p':
      case 'P':
      case 'x':
      case 'u': return code_point_or_property(c);
      default: break;
    }
    if (kSameEscapes.find(c) == kSameEscapes.npos) return base::fail(refuse(fmt::format("uses \\{}", c)));
    take(2);
    return {};
  }

  base::Result<> put_set(std::string_view set, bool negated) {
    if (in_set_ && negated) {
      // Only for \S there is an equal inside brackets (all but U+180E, which no text holds on purpose).
      if (set != kSpaceSet) return base::fail(refuse("negates a class inside brackets"));
      out_ += R"(\S)";
    } else {
      out_ += in_set_ ? std::string(set) : fmt::format("[{}{}]", negated ? "^" : "", set);
    }
    rest_.remove_prefix(2);
    return {};
  }

  base::Result<> code_point_or_property(char c) {
    if (c == 'u') {  // \uXXXX
      if (rest_.size() < 6) return base::fail(refuse("has an unfinished \\u"));
      out_ += fmt::format("\\x{{{}}}", rest_.substr(2, 4));
      rest_.remove_prefix(6);
      return {};
    }
    const std::size_t close = rest_.starts_with("\\x{") || c != 'x' ? rest_.find('}') : 3;
    if (close >= rest_.size()) return base::fail(refuse(fmt::format("has an unfinished \\{}", c)));
    const std::string_view name =
        c != 'x' && rest_.starts_with(fmt::format("\\{}{{", c)) ? rest_.substr(3, close - 3) : "";
    // By its own name alone PCRE2 takes a script with its extensions: the ideographic full stop would be \p{Han}.
    if (name.size() > 2 && is_script(name)) {
      out_ += fmt::format("\\{}{{sc:{}}}", c, name);
      rest_.remove_prefix(close + 1);
      return {};
    }
    take(close + 1);
    return {};
  }

  std::string_view rest_;
  std::string out_;
  bool in_set_ = false;
};

// One search, as PCRE2 reports it before every item of the pattern.
struct Search {
  TextBudget& budget;
  std::uint64_t cost;
  std::size_t at;
};

int spend_steps(pcre2_callout_block_8* block, void* data) {
  Search& search = *static_cast<Search*>(data);
  const std::size_t at = block->current_position;
  const std::size_t passed = at > search.at ? at - search.at : search.at - at;
  search.at = at;
  return search.budget.spend_steps(search.cost * (1 + passed)) ? 0 : PCRE2_ERROR_CALLOUT;
}

struct FreeContext {
  void operator()(pcre2_match_context_8* context) const { pcre2_match_context_free_8(context); }
  void operator()(pcre2_compile_context_8* context) const { pcre2_compile_context_free_8(context); }
  void operator()(pcre2_match_data_8* data) const { pcre2_match_data_free_8(data); }
  void operator()(pcre2_code_8* code) const { pcre2_code_free_8(code); }
};

}  // namespace

struct Regex::Code {
  std::unique_ptr<pcre2_code_8, FreeContext> code;
  std::uint64_t step_cost = 1;
};

Regex::Regex(std::unique_ptr<const Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

base::Result<Regex> Regex::create(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) return base::fail(refuse("is longer than 16 KiB"));
  const std::string translated = TRY(Translator(pattern).run());
  const std::unique_ptr<pcre2_compile_context_8, FreeContext> context(pcre2_compile_context_create_8(nullptr));
  ASSERT(context != nullptr);
  pcre2_set_newline_8(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit_8(context.get(), kNestingMax);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  // There, ^ and $ are the ends of lines.
  code->code.reset(
      pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(translated.data()), translated.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT, &error,
                      &offset, context.get()));
  if (!code->code) {
    std::array<PCRE2_UCHAR8, 128> text{};
    pcre2_get_error_message_8(error, text.data(), text.size());
    return base::fail(refuse(fmt::format("does not compile ({})", reinterpret_cast<const char*>(text.data()))));
  }
  std::uint32_t matches_empty = 0;
  pcre2_pattern_info_8(code->code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) return base::fail(refuse("matches the empty text"));
  code->step_cost = 1 + translated.size() / kPatternBytesPerStep;
  return Regex(std::move(code));
}

base::Result<std::optional<Match>> Regex::find(std::string_view text, std::size_t from, TextBudget& budget) const {
  const std::unique_ptr<pcre2_match_data_8, FreeContext> data(pcre2_match_data_create_8(1, nullptr));
  const std::unique_ptr<pcre2_match_context_8, FreeContext> context(pcre2_match_context_create_8(nullptr));
  ASSERT(data != nullptr && context != nullptr);
  Search search{.budget = budget, .cost = code_->step_cost, .at = from};
  pcre2_set_callout_8(context.get(), &spend_steps, &search);
  pcre2_set_match_limit_8(context.get(), UINT32_MAX);  // the budget is the limit
  pcre2_set_heap_limit_8(context.get(), kHeapLimitKib);
  const int rc = pcre2_match_8(code_->code.get(), reinterpret_cast<PCRE2_SPTR8>(text.data()), text.size(), from,
                               PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data.get(), context.get());
  if (rc == PCRE2_ERROR_NOMATCH) return std::optional<Match>();
  if (rc < 0) return base::fail(budget.too_slow());
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer_8(data.get());
  return std::optional(Match{range[0], range[1]});
}

}  // namespace llorch::text::pre_tokenizer
