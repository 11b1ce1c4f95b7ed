#pragma once
// The sections of a tokenizer.json, one function each; inside of this directory. All: UNSUPPORTED_TOKENIZER,
// CONFIG_KEY_INVALID.
#include <boost/json/value.hpp>
#include <string>
#include <unordered_map>

#include "base/keyed_hash.h"
#include "base/result.h"
#include "engine/io/tokenizer_json/json_document.h"
#include "text/tokenizer_data.h"

namespace llorch::engine::io::tokenizer_json {

using TokenIds = std::unordered_map<std::string, text::TokenId, base::KeyedHash>;

// model and added_tokens: fills tokens, kinds, scores, merges, rules; returns the ids by text.
base::Result<TokenIds> read_model(const JsonDocument& document, text::TokenizerData& data);
// Adds one token or makes the one of this text special or user-defined.
base::Result<> add_token(const boost::json::value& added, std::uint32_t id, TokenIds& ids, text::TokenizerData& data);

// normalizer, pre_tokenizer, decoder, post_processor.
base::Result<> read_pipeline(const boost::json::value& root, text::TokenizerData& data);

}  // namespace llorch::engine::io::tokenizer_json
