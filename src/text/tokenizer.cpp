#include "text/tokenizer.h"

#include <algorithm>

#include "base/assert.h"
#include "text/text_budget.h"
#include "text/tokenizer_parts.h"

namespace llorch::text {

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

base::Result<Tokenizer> Tokenizer::create(TokenizerData data) {
  return Tokenizer(std::make_unique<const TokenizerParts>(TRY(build_tokenizer(std::move(data)))));
}

const TokenizerFacts& Tokenizer::facts() const { return parts_->facts; }

base::Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const partition::TrustedSpan whole{0, text.size()};
  return encode(text, {&whole, options.parse_special ? 1u : 0u}, options.add_special, options.budget);
}

base::Result<std::vector<TokenId>> Tokenizer::encode(std::span<const TextRun> runs, bool add_special,
                                                     TextBudget* budget) const {
  std::string text;
  std::vector<partition::TrustedSpan> trusted;
  for (const TextRun& run : runs) {
    if (run.origin == TextOrigin::kTemplate) {
      const bool continues = !trusted.empty() && trusted.back().end == text.size();
      if (!continues) trusted.push_back({text.size(), text.size()});
      trusted.back().end += run.text.size();
    }
    text += run.text;
  }
  return encode(text, trusted, add_special, budget);
}

base::Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text,
                                                     std::span<const partition::TrustedSpan> trusted, bool add_special,
                                                     TextBudget* shared_budget) const {
  ASSERT(text.size() < std::size_t{1} << 31, "bytes={}", text.size());
  TextBudget own = TextBudget::of_texts();
  TextBudget& budget = shared_budget != nullptr ? *shared_budget : own;
  budget.add_text(text.size());
  const std::vector<partition::Fragment> fragments = TRY(parts_->partition->split(text, trusted, budget));
  std::vector<TokenId> ids;
  if (add_special) ids = parts_->prefix;
  for (const partition::Fragment& fragment : fragments) {
    if (fragment.token) {
      ids.push_back(*fragment.token);
      continue;
    }
    const pre_tokenizer::Pieces pieces =
        TRY(parts_->pre_tokenizer.split(fragment.text, fragment.at_text_start, budget));
    std::size_t begin = 0;
    for (const std::size_t end : pieces.ends) {
      TRY(parts_->model->encode(std::string_view(pieces.text).substr(begin, end - begin), budget, ids));
      begin = end;
    }
  }
  if (add_special) ids.insert(ids.end(), parts_->suffix.begin(), parts_->suffix.end());
  return ids;
}

base::Result<std::optional<Tokenizer::Pair>> Tokenizer::encode_pair(std::string_view first, std::string_view second,
                                                                    TextBudget* budget) const {
  if (!parts_->pair) return std::optional<Pair>();
  Pair out{.tokens = parts_->prefix, .second_begin = 0, .second_type = parts_->pair->second_type};
  const auto append = [&](const std::vector<TokenId>& ids) {
    out.tokens.insert(out.tokens.end(), ids.begin(), ids.end());
  };
  append(TRY(encode(first, {.add_special = false, .budget = budget})));
  append(parts_->pair->between);
  out.second_begin = out.tokens.size();
  append(TRY(encode(second, {.add_special = false, .budget = budget})));
  append(parts_->suffix);
  return out;
}

std::string_view Tokenizer::token_bytes(TokenId token) const {
  ASSERT(index(token) < facts().vocab_size, "token={} vocab_size={}", index(token), facts().vocab_size);
  return parts_->vocabulary->output(token);
}

std::string Tokenizer::decode(std::span<const TokenId> tokens) const {
  std::string text;
  bool at_start = true;
  for (const TokenId token : tokens) {
    const std::string_view bytes = token_bytes(token);
    text += bytes;
    if (!at_start || bytes.empty()) continue;
    at_start = false;
    if (parts_->leading_space == model::LeadingSpace::kDropInFirstToken) std::erase(text, ' ');
    if (parts_->leading_space == model::LeadingSpace::kDropOne && text.starts_with(' ')) text.erase(0, 1);
  }
  return text;
}

bool Tokenizer::is_end_of_generation(TokenId token) const {
  return std::binary_search(facts().end_of_generation.begin(), facts().end_of_generation.end(), token);
}

}  // namespace llorch::text
