#pragma once
// A tokenizer.json read in one pass: its vocabulary and merges are lists of up to millions, the rest is small.
#include <boost/json/value.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::engine::io::tokenizer_json {

struct VocabularyEntry {
  std::string text;
  double number = 0;  // BPE: id; Unigram: score
};

struct MergeEntry {
  std::string left, right;  // "a b" as one string: both in left, and right is empty
  bool is_pair = false;
};

struct JsonDocument {
  boost::json::value root;  // model.vocab and model.merges are null
  std::vector<VocabularyEntry> vocabulary;
  bool vocabulary_is_object = false;
  std::vector<MergeEntry> merges;
};

// CORRUPT_FILE: no JSON, nested too deep, or more of anything than a tokenizer has (text::TokenizerLimits).
base::Result<JsonDocument> parse_document(std::string_view json, std::string_view source);

// A small JSON file, e.g. tokenizer_config.json. CORRUPT_FILE.
base::Result<boost::json::value> parse_small(std::string_view json, std::string_view source);

}  // namespace llorch::engine::io::tokenizer_json
