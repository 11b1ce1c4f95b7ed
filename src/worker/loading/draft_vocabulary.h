#pragma once
// Whether a draft model writes in the tokens of the model that it drafts for.
#include <cstdint>

#include "base/result.h"
#include "text/tokenizer.h"
#include "text/tokenizer_data.h"

namespace llorch::worker::loading {

// Without the unused tokens at the end: models of one family fill their tables differently.
std::uint32_t tokens_used(const text::TokenizerData& data);

// Tokens that both have are the same ones; either may have more behind them. `tokens_used`: of the model. Errors: INVALID_PARAMS (the
// token at which they part), those of Tokenizer::create().
base::Result<> check_draft_vocabulary(const text::Tokenizer& tokenizer, std::uint32_t tokens_used,
                                      text::TokenizerData draft);

}  // namespace llorch::worker::loading
