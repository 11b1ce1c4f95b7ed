#pragma once
// What a tokenizer is built of; inside of text.
#include <memory>
#include <vector>

#include "base/result.h"
#include "text/partition/partition.h"
#include "text/pre_tokenizer/pre_tokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_models/model.h"
#include "text/tokenizer_models/spelling.h"
#include "text/tokenizer_models/vocabulary.h"

namespace llorch::text {

struct TokenizerParts {
  TokenizerFacts facts;
  std::unique_ptr<const model::Vocabulary> vocabulary;
  std::unique_ptr<const partition::Partition> partition;
  pre_tokenizer::PreTokenizer pre_tokenizer;
  std::unique_ptr<const model::Model> model;
  model::LeadingSpace leading_space = model::LeadingSpace::kKeep;
  std::vector<TokenId> prefix, suffix;  // what add_special puts around a text
  std::optional<PairRule> pair;
};

// Errors as Tokenizer::create.
base::Result<TokenizerParts> build_tokenizer(TokenizerData data);

}  // namespace llorch::text
