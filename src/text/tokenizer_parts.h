#pragma once
// What a tokenizer is built of; inside of engine/text.
#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/text/model/model.h"
#include "engine/text/model/spelling.h"
#include "engine/text/model/vocabulary.h"
#include "engine/text/partition/partition.h"
#include "engine/text/pre_tokenizer/pre_tokenizer.h"
#include "engine/text/tokenizer.h"

namespace llorch::engine::text {

struct TokenizerParts {
  TokenizerFacts facts;
  std::unique_ptr<const model::Vocabulary> vocabulary;
  std::unique_ptr<const partition::Partition> partition;
  pre_tokenizer::PreTokenizer pre_tokenizer;
  std::unique_ptr<const model::Model> model;
  model::LeadingSpace leading_space = model::LeadingSpace::kKeep;
  std::vector<TokenId> prefix, suffix;  // what add_special puts around a text
};

// Errors as Tokenizer::create.
base::Result<TokenizerParts> build_tokenizer(TokenizerData data);

}  // namespace llorch::engine::text
