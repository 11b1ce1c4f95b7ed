#include "worker/loading/draft_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace llorch::worker::loading {

std::uint32_t tokens_used(const text::TokenizerData& data) {
  std::size_t count = data.tokens.size();
  while (count > 0 && !data.kinds.empty() && data.kinds[count - 1] == text::TokenKind::kUnused) --count;
  return static_cast<std::uint32_t>(count);
}

base::Result<> check_draft_vocabulary(const text::Tokenizer& tokenizer, std::uint32_t tokens_used,
                                      text::TokenizerData draft) {
  const std::uint32_t shared = std::min(tokens_used, loading::tokens_used(draft));
  const auto drafted = TRY(text::Tokenizer::create(std::move(draft)));
  std::uint32_t same = 0;
  while (same < shared && tokenizer.token_bytes(base::TokenId{same}) == drafted.token_bytes(base::TokenId{same}))
    ++same;
  if (same == shared) return {};
  return base::fail(base::Error{
      base::ErrorCode::kInvalidParams,
      fmt::format("the draft model has another vocabulary: it differs from token {} on; name one of the same family",
                  same),
      {}}.with("field", std::string("draft_model")));
}

}  // namespace llorch::worker::loading
