#include "text/partition/partition.h"

#include <algorithm>

#include "base/assert.h"
#include "text/unicode/char_class.h"

namespace llorch::text::partition {
namespace {

// What \w is in Rust's regular expressions (Unicode TR 18, annex C).
constexpr std::string_view kWordCharacter = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}])";

// Where the last character of non-empty `text` begins.
std::size_t last_char_begin(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at + unicode::next_char(text.substr(at)).bytes == text.size() ? at : text.size() - 1;
}

// Where the spaces that end `text` begin.
std::size_t trailing_spaces_begin(std::string_view text) {
  while (!text.empty()) {
    const std::size_t at = last_char_begin(text);
    if (unicode::next_char(text.substr(at)).char_class != unicode::kSpace) break;
    text = text.substr(0, at);
  }
  return text.size();
}

std::size_t leading_spaces_end(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size()) {
    const unicode::Char c = unicode::next_char(text.substr(end));
    if (c.char_class != unicode::kSpace) break;
    end += c.bytes;
  }
  return end;
}

// To ask for a word character on either side takes the time of so many steps.
constexpr std::uint64_t kStepsPerWord = 32;

bool is_trusted_only(TokenKind kind) { return kind == TokenKind::kControl || kind == TokenKind::kUnknown; }

}  // namespace

Partition::Partition(Options options, pre_tokenizer::Regex word_character)
    : options_(std::move(options)), word_character_(std::move(word_character)) {}

base::Result<Partition> Partition::create(const TokenizerData& data, std::span<const std::string_view> spellings,
                                          Options options) {
  const std::size_t count = data.tokens.size();
  ASSERT(spellings.size() == count && data.kinds.size() == count);
  auto word_character = TRY(pre_tokenizer::Regex::create(kWordCharacter));
  Partition made(std::move(options), std::move(word_character));
  made.rules_.resize(count);
  std::vector<bool> normalized(count);
  for (const AddedTokenRule& rule : data.json.added) {
    made.rules_[index(rule.id)] = {rule.lstrip, rule.rstrip, rule.single_word};
    normalized[index(rule.id)] = rule.normalized;
  }
  std::vector<std::string> normal(count);  // what the views below look at
  TextBudget budget = TextBudget::of_tokens(data.tokens);
  std::vector<SpelledToken> raw_tokens, normalized_tokens;
  for (std::uint32_t i = 0; i < count; ++i) {
    const bool trusted_only = is_trusted_only(data.kinds[i]);
    if (!trusted_only && data.kinds[i] != TokenKind::kUserDefined) continue;
    if (normalized[i]) normal[i] = TRY(made.options_.normalizer.apply(spellings[i], budget));
    // Only the raw text knows its origins, so a control token is looked for there if normalizing leaves it as it is.
    const bool in_raw = !normalized[i] || (trusted_only && normal[i] == spellings[i]);
    const SpelledToken token{in_raw ? spellings[i] : normal[i], TokenId{i}, trusted_only};
    if (!token.text.empty()) (in_raw ? raw_tokens : normalized_tokens).push_back(token);
  }
  made.raw_ = std::make_unique<SpecialTokens>(raw_tokens);
  made.normalized_ = std::make_unique<SpecialTokens>(normalized_tokens);
  return made;
}

base::Result<std::vector<Fragment>> Partition::split(std::string_view text, std::span<const TrustedSpan> trusted,
                                                     TextBudget& budget) const {
  std::vector<Fragment> fragments;
  std::size_t done = 0;
  const auto add_plain = [&](std::size_t end) -> base::Result<> {
    if (end <= done) return {};
    // Of the spans that end there or later, the first one begins first.
    const auto span = std::ranges::lower_bound(trusted, end, {}, &TrustedSpan::end);
    const bool all_trusted = span != trusted.end() && span->begin <= done;
    return split_plain(text.substr(done, end - done), all_trusted, done == 0, budget, fragments);
  };
  for (const Cut& cut : TRY(cuts(*raw_, text, trusted, budget))) {
    TRY(add_plain(cut.begin));
    fragments.push_back({.token = cut.id});
    done = cut.end;
  }
  TRY(add_plain(text.size()));
  return fragments;
}

base::Result<> Partition::split_plain(std::string_view raw, bool trusted, bool at_text_start, TextBudget& budget,
                                      std::vector<Fragment>& out) const {
  const std::string text = TRY(options_.normalizer.apply(raw, budget));
  std::size_t done = 0;
  const auto add_plain = [&](std::size_t end) {
    if (end <= done) return;
    out.push_back({.text = text.substr(done, end - done), .at_text_start = at_text_start && done == 0});
  };
  const TrustedSpan whole{0, text.size()};
  for (const Cut& cut : TRY(cuts(*normalized_, text, {&whole, trusted ? 1u : 0u}, budget))) {
    add_plain(cut.begin);
    out.push_back({.token = cut.id});
    done = cut.end;
  }
  add_plain(text.size());
  return {};
}

base::Result<std::vector<Partition::Cut>> Partition::cuts(const SpecialTokens& tokens, std::string_view text,
                                                          std::span<const TrustedSpan> trusted,
                                                          TextBudget& budget) const {
  const auto matches = TRY(options_.order == Order::kLongestFirst ? tokens.find(text, trusted, budget)
                                                                  : tokens.find_leftmost(text, trusted, budget));
  std::vector<Cut> cuts;
  std::size_t done = 0;
  for (const SpecialMatch& match : matches) {
    const Rule& rule = rules_[index(match.id)];
    if (rule.single_word && !budget.spend_steps(kStepsPerWord)) return base::fail(budget.too_slow());
    if (rule.single_word && !stands_alone(text, match)) continue;
    Cut cut{match.begin, match.begin + match.bytes, match.id};
    // Spaces that the token before took are gone.
    if (rule.lstrip) cut.begin = done + trailing_spaces_begin(text.substr(done, std::max(done, cut.begin) - done));
    if (rule.rstrip) cut.end += leading_spaces_end(text.substr(cut.end));
    // The next token may stand in the spaces that this one takes, and take them too.
    if (!budget.spend_walk(cut.end - match.begin)) return base::fail(budget.too_slow());
    cuts.push_back(cut);
    done = cut.end;
  }
  return cuts;
}

bool Partition::stands_alone(std::string_view text, const SpecialMatch& match) const {
  const auto is_word = [&](std::string_view character) {
    TextBudget budget = TextBudget::of_text(character.size());
    const auto found = word_character_.find(pre_tokenizer::well_formed(character), 0, budget);
    ASSERT(found.has_value());  // a set and one character take a few steps
    return found->has_value();
  };
  const std::string_view before = text.substr(0, match.begin), after = text.substr(match.begin + match.bytes);
  if (!before.empty() && is_word(before.substr(last_char_begin(before)))) return false;
  return after.empty() || !is_word(after.substr(0, unicode::next_char(after).bytes));
}

}  // namespace llorch::text::partition
