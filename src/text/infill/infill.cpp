#include "text/infill/infill.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "text/text_budget.h"

namespace llorch::text {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, as SPM spells a space

// Families, the newest first: where a vocabulary has the tokens of two, its model was trained with the first.
struct Family {
  std::string_view prefix, suffix;
  std::string_view middle;  // empty: none, and the suffix comes first
};
constexpr std::array kFamilies{
    Family{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},     // Qwen Coder, CodeGemma, Granite 4
    Family{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},           // StarCoder, Granite, Stable Code
    Family{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},           // SantaCoder
    Family{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},  // GLM
    // DeepSeek; U+FF5C and U+2581
    Family{"<\xEF\xBD\x9C"
           "fim\xE2\x96\x81"
           "begin\xEF\xBD\x9C>",
           "<\xEF\xBD\x9C"
           "fim\xE2\x96\x81hole\xEF\xBD\x9C>",
           "<\xEF\xBD\x9C"
           "fim\xE2\x96\x81"
           "end\xEF\xBD\x9C>"},
    Family{"\xE2\x96\x81<PRE>", "\xE2\x96\x81<SUF>", "\xE2\x96\x81<MID>"},  // Code Llama
    Family{"<PRE>", "<SUF>", "<MID>"}, Family{"[PREFIX]", "[SUFFIX]", ""},  // Codestral
};
constexpr std::array<std::string_view, 3> kPads{"<|fim_pad|>", "<fim_pad>", "<fim-pad>"};
constexpr std::array<std::string_view, 5> kRepositories{"<|repo_name|>", "<|fim_repo|>", "<repo_name>", "<fim-repo>",
                                                        "<reponame>"};
constexpr std::array<std::string_view, 2> kSeparators{"<|file_sep|>", "<file_sep>"};

using Found = std::map<std::string_view, TokenId>;

// Those of the spellings above that are tokens of their own, not made of text by the model.
Found find_spellings(const TokenizerData& data) {
  Found wanted;
  const auto want = [&](std::string_view spelling) { wanted.emplace(spelling, TokenId{}); };
  for (const Family& family : kFamilies) {
    for (const std::string_view part : {family.prefix, family.suffix, family.middle}) want(part);
  }
  for (const auto spelling : kPads) want(spelling);
  for (const auto spelling : kRepositories) want(spelling);
  for (const auto spelling : kSeparators) want(spelling);
  Found found;
  for (std::size_t i = 0; i < data.kinds.size(); ++i) {
    if (data.kinds[i] != TokenKind::kControl && data.kinds[i] != TokenKind::kUserDefined) continue;
    const auto it = wanted.find(data.tokens[i]);
    if (it != wanted.end()) found.emplace(it->first, TokenId{static_cast<std::uint32_t>(i)});
  }
  return found;
}

std::optional<TokenId> first_of(const Found& found, std::span<const std::string_view> spellings) {
  for (const std::string_view spelling : spellings) {
    if (const auto it = found.find(spelling); it != found.end()) return it->second;
  }
  return std::nullopt;
}

InfillTokens of_family(const Found& found, const Family& family) {
  const auto token = [&](std::string_view spelling) { return first_of(found, {&spelling, 1}); };
  InfillTokens out;
  out.prefix = token(family.prefix);
  out.suffix = token(family.suffix);
  if (!family.middle.empty()) out.middle = token(family.middle);
  const bool is_whole = out.prefix && out.suffix && (family.middle.empty() || out.middle);
  return is_whole ? out : InfillTokens{};
}

std::array<std::optional<TokenId> InfillTokens::*, 6> all_roles() {
  using T = InfillTokens;
  return {&T::prefix, &T::suffix, &T::middle, &T::pad, &T::repository, &T::separator};
}

}  // namespace

InfillTokens infill_tokens(const TokenizerData& data) {
  const Found found = find_spellings(data);
  InfillTokens out;
  for (const Family& family : kFamilies) {
    out = of_family(found, family);
    if (out.prefix) break;
  }
  // In other models these tokens mean something else, if anything.
  if (out.prefix || data.infill.prefix) {
    out.pad = first_of(found, kPads);
    out.repository = first_of(found, kRepositories);
    out.separator = first_of(found, kSeparators);
  }
  for (const auto role : all_roles()) {
    // A file that names a token which is none has been taken before anything read that key, and goes on without it.
    if (data.infill.*role && index(*(data.infill.*role)) < data.tokens.size()) out.*role = data.infill.*role;
  }
  return out;
}

std::optional<Infill> Infill::of(const TokenizerData& data) {
  Infill out;
  out.tokens_ = infill_tokens(data);
  if (!out.tokens_.prefix || !out.tokens_.suffix) return std::nullopt;
  out.suffix_first_ = !out.tokens_.middle;
  // A file that names two tokens and not the third says nothing of how they stand.
  if (out.suffix_first_ && (data.infill.prefix || data.infill.suffix)) return std::nullopt;
  for (const auto role : all_roles()) {
    if (!(out.tokens_.*role)) continue;
    std::string_view text = data.tokens[index(*(out.tokens_.*role))];
    if (text.starts_with(kSpace)) text.remove_prefix(kSpace.size());  // which a tokenizer puts there itself
    if (!text.empty()) out.spellings_.emplace_back(text);
  }
  return out;
}

// Puts the tokens of one prompt in a row.
class Infill::Writer {
 public:
  Writer(const Infill& infill, const Tokenizer& tokenizer) : infill_(infill), tokenizer_(tokenizer) {}

  void token(const std::optional<TokenId>& token) {
    if (token) out_.push_back(*token);
  }

  // A text that begins here, as its first letter would in a text of its own.
  base::Result<> begin(std::string_view text) { return append(TRY(encode(text)), text); }

  // One that goes on: no space of the tokenizer's own is before it.
  base::Result<> go_on(std::string_view text) { return append(TRY(encode_rest(text)), text); }

  std::vector<TokenId> take() { return std::move(out_); }

 private:
  bool is_reserved(TokenId token) const {
    return std::ranges::any_of(all_roles(), [&](auto role) { return infill_.tokens_.*role == token; });
  }
  bool holds_reserved(const std::vector<TokenId>& tokens) const {
    return std::ranges::any_of(tokens, [this](TokenId token) { return is_reserved(token); });
  }

  base::Result<std::vector<TokenId>> encode(std::string_view text) {
    return tokenizer_.encode(text, {.add_special = false, .budget = &budget_});
  }

  // The tokens behind those of a control character before the text, with which no text merges.
  base::Result<std::vector<TokenId>> encode_rest(std::string_view text) {
    if (!tokenizer_.facts().drops_leading_space) return encode(text);
    if (!control_) control_ = TRY(encode("\x01"));
    std::vector<TokenId> all = TRY(encode("\x01" + std::string(text)));
    const bool is_apart = all.size() >= control_->size() && std::equal(control_->begin(), control_->end(), all.begin());
    if (!is_apart) return encode(text);
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(control_->size()));
    return all;
  }

  base::Result<> append(std::vector<TokenId> tokens, std::string_view text) {
    if (holds_reserved(tokens)) tokens = TRY(encode_cut(text));
    if (holds_reserved(tokens)) {
      return base::fail(base::Error{base::ErrorCode::kInvalidParams,
                                    "the text spells a token of fill in the middle that it cannot be told without",
                                    {}}
                            .with("field", std::string("prompt"))
                            .with("reason", std::string("infill_token")));
    }
    out_.insert(out_.end(), tokens.begin(), tokens.end());
    return {};
  }

  // Cut behind the first character of every spelling of a reserved token.
  base::Result<std::vector<TokenId>> encode_cut(std::string_view text) {
    std::vector<TokenId> out;
    std::size_t begin = 0;
    const auto add = [&](std::size_t end) -> base::Result<> {
      const std::string_view piece = text.substr(begin, end - begin);
      const auto tokens = TRY(begin == 0 ? encode(piece) : encode_rest(piece));
      out.insert(out.end(), tokens.begin(), tokens.end());
      begin = end;
      return {};
    };
    std::size_t compared = 0;  // at each place at most
    for (const std::string& spelling : infill_.spellings_) compared += spelling.size();
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (!budget_.spend_hash(compared)) return base::fail(budget_.too_slow());
      const auto stands_here = [&](const std::string& spelling) { return text.substr(i).starts_with(spelling); };
      if (std::ranges::any_of(infill_.spellings_, stands_here)) TRY(add(i + 1));
    }
    TRY(add(text.size()));
    return out;
  }

  const Infill& infill_;
  const Tokenizer& tokenizer_;
  TextBudget budget_ = TextBudget::of_texts();
  std::optional<std::vector<TokenId>> control_;  // that character's tokens, once they were asked for
  std::vector<TokenId> out_;
};

base::Result<std::vector<TokenId>> Infill::prompt(const Tokenizer& tokenizer, const InfillInput& input) const {
  // Where no token separates files, this does; both, and the two names below, are those of llama.cpp's server.
  constexpr std::string_view kSnippet = "\n\n--- snippet ---\n\n";
  Writer out(*this, tokenizer);
  if (tokenizer.facts().add_bos) out.token(tokenizer.facts().bos);
  if (!input.files.empty() && tokens_.repository) {
    out.token(tokens_.repository);
    TRY(out.begin("myproject\n"));
  }
  for (const InfillFile& file : input.files) {
    out.token(tokens_.separator);
    TRY(out.begin(tokens_.separator ? std::string(file.name) + "\n" : std::string(kSnippet)));
    TRY(out.go_on(file.text));
  }
  if (!input.files.empty() && tokens_.separator) {
    out.token(tokens_.separator);
    TRY(out.begin("filename\n"));
  }
  const auto prefix = [&]() -> base::Result<> {
    out.token(tokens_.prefix);
    return out.begin(input.prefix);
  };
  const auto suffix = [&]() -> base::Result<> {
    out.token(tokens_.suffix);
    return out.go_on(input.suffix);
  };
  if (suffix_first_) {
    TRY(suffix());
    TRY(prefix());
  } else {
    TRY(prefix());
    TRY(suffix());
  }
  out.token(tokens_.middle);
  return out.take();
}

}  // namespace llorch::text
