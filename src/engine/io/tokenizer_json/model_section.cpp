#include <algorithm>
#include <cmath>

#include "engine/io/tokenizer_json/fields.h"
#include "engine/io/tokenizer_json/sections.h"

namespace llorch::engine::io::tokenizer_json {
namespace {

namespace bj = boost::json;
using text::TokenId;
using text::TokenizerData;
using text::TokenKind;
using Limits = text::TokenizerLimits;

bool is_byte_token(std::string_view text) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return text.size() == 6 && text.starts_with("<0x") && text[5] == '>' && is_hex(text[3]) && is_hex(text[4]);
}

// Grows the vocabulary to hold `id`; ids between are unused.
void place(std::uint32_t id, std::string_view text, TokenizerData& data) {
  if (id >= data.tokens.size()) {
    data.tokens.resize(id + 1u);
    data.kinds.resize(id + 1u, TokenKind::kUnused);
  }
  data.tokens[id] = text;
  data.kinds[id] = TokenKind::kNormal;
}

base::Result<TokenIds> read_vocabulary(const JsonDocument& document, TokenizerData& data) {
  const bool by_id = data.model != "unigram";
  if (document.vocabulary_is_object != by_id && !document.vocabulary.empty()) {
    return base::fail(invalid("the vocabulary has another model's form"));
  }
  TokenIds ids;
  ids.reserve(document.vocabulary.size());
  for (std::size_t i = 0; i < document.vocabulary.size(); ++i) {
    const VocabularyEntry& entry = document.vocabulary[i];
    const double number = by_id ? entry.number : static_cast<double>(i);
    if (!(number >= 0 && number < Limits::kTokensMax) || number != std::floor(number)) {
      return base::fail(invalid(fmt::format("token id {} is none of 0..{}", number, Limits::kTokensMax - 1)));
    }
    if (entry.text.size() > Limits::kStringBytesMax) return base::fail(invalid("a token is too long"));
    const auto id = static_cast<std::uint32_t>(number);
    if (id < data.tokens.size() && data.kinds[id] != TokenKind::kUnused) {
      return base::fail(invalid(fmt::format("two tokens have id {}", id)));
    }
    place(id, entry.text, data);
    ids.try_emplace(entry.text, TokenId{id});  // a Unigram vocabulary may hold a text twice
    if (!by_id) data.scores.push_back(entry.number);
  }
  return ids;
}

base::Result<> read_merges(const JsonDocument& document, const TokenIds& ids, TokenizerData& data) {
  const auto id_of = [&](std::string_view text) -> std::optional<TokenId> {
    const auto it = ids.find(std::string(text));
    if (it == ids.end()) return std::nullopt;
    return it->second;
  };
  for (const MergeEntry& merge : document.merges) {
    std::string_view left = merge.left, right = merge.right;
    if (!merge.is_pair) {
      const std::size_t gap = left.find(' ');
      if (gap == std::string_view::npos || left.find(' ', gap + 1) != std::string_view::npos) {
        return base::fail(invalid(fmt::format("merge {} is no pair", data.json.merges.size())));
      }
      right = left.substr(gap + 1);
      left = left.substr(0, gap);
    }
    const auto left_id = id_of(left), right_id = id_of(right);
    if (!left_id || !right_id || !id_of(std::string(left).append(right))) {
      return base::fail(
          invalid(fmt::format("merge {} is not a pair of tokens that together are a token", data.json.merges.size())));
    }
    data.json.merges.push_back({*left_id, *right_id});
  }
  return {};
}

base::Result<> check_bpe(const Fields& model) {
  const bj::value* dropout = model.find("dropout");
  const bool drops = dropout && !(dropout->is_number() && dropout->to_number<double>() == 0);
  if (drops) return base::fail(unsupported("random merges (dropout)"));
  if (!model.string("continuing_subword_prefix").empty() || !model.string("end_of_word_suffix").empty()) {
    return base::fail(unsupported("subword prefixes or suffixes"));
  }
  return {};
}

base::Result<> check_word_piece(const Fields& model) {
  const bj::value* chars_max = model.find("max_input_chars_per_word");
  if (model.string("continuing_subword_prefix") == "##" && (!chars_max || Fields::as_count(chars_max) == 100u))
    return {};
  return base::fail(
      unsupported("a WordPiece model whose prefix is not \"##\" or whose words may have other than 100 "
                  "characters"));
}

base::Result<> read_unknown(const Fields& model, const TokenIds& ids, TokenizerData& data) {
  if (data.model == "unigram") {
    if (const auto id = model.count("unk_id")) data.unknown = TokenId{*id};
  } else if (const std::string unknown = model.string("unk_token"); !unknown.empty()) {
    const auto it = ids.find(unknown);
    if (it != ids.end()) data.unknown = it->second;
  }
  if (data.unknown && index(*data.unknown) >= data.tokens.size()) {
    return base::fail(invalid("the unknown token is not in the vocabulary"));
  }
  if (data.unknown) data.kinds[index(*data.unknown)] = TokenKind::kUnknown;
  return {};
}

}  // namespace

base::Result<> add_token(const bj::value& added, std::uint32_t id, TokenIds& ids, TokenizerData& data) {
  const Fields fields(&added);
  const std::string content = fields.string("content");
  if (id >= Limits::kTokensMax || content.size() > Limits::kStringBytesMax) {
    return base::fail(invalid("an added token has an impossible id or is too long"));
  }
  if (content.empty()) return {};
  const auto known = ids.find(content);
  if (known != ids.end() && index(known->second) != id) {
    return base::fail(invalid(fmt::format("an added token has the ids {} and {}", index(known->second), id)));
  }
  const bool is_new = known == ids.end();
  if (is_new) {
    if (id < data.tokens.size() && data.kinds[id] != TokenKind::kUnused) {
      return base::fail(invalid(fmt::format("two tokens have id {}", id)));
    }
    place(id, content, data);
    ids.emplace(content, TokenId{id});
  }
  const bool special = fields.boolean("special");
  data.kinds[id] = special ? TokenKind::kControl : TokenKind::kUserDefined;
  const text::AddedTokenRule rule{.id = TokenId{id},
                                  .lstrip = fields.boolean("lstrip"),
                                  .rstrip = fields.boolean("rstrip"),
                                  .single_word = fields.boolean("single_word"),
                                  .normalized = fields.boolean("normalized", !special),
                                  .outside_model = is_new};
  const bool has_rule = rule.lstrip || rule.rstrip || rule.single_word || rule.normalized || rule.outside_model;
  if (has_rule) data.json.added.push_back(rule);
  return {};
}

base::Result<TokenIds> read_model(const JsonDocument& document, TokenizerData& data) {
  const Fields root(&document.root);
  const Fields model = root.object("model");
  if (!model.is_object()) return base::fail(invalid("tokenizer.json has no model"));
  const std::string type = model.string("type");
  if (type == "BPE" || (type.empty() && !document.merges.empty())) {
    data.model = "bpe";
    TRY(check_bpe(model));
  } else if (type == "Unigram") {
    data.model = "unigram";
  } else if (type == "WordPiece") {
    data.model = "wordpiece";
    TRY(check_word_piece(model));
  } else {
    return base::fail(unsupported(fmt::format("a model of type \"{}\"", type.substr(0, 64))));
  }
  data.json.byte_fallback = model.boolean("byte_fallback");
  data.json.whole_piece_first = model.boolean("ignore_merges");
  data.json.fuse_unknown = data.model == "unigram" || model.boolean("fuse_unk");
  TokenIds ids = TRY(read_vocabulary(document, data));
  if (data.json.byte_fallback) {
    for (std::size_t i = 0; i < data.tokens.size(); ++i) {
      if (is_byte_token(data.tokens[i])) data.kinds[i] = TokenKind::kByte;
    }
  }
  TRY(read_merges(document, ids, data));
  TRY(read_unknown(model, ids, data));
  if (const bj::array* added = root.list("added_tokens")) {
    for (const bj::value& token : *added) {
      const auto id = Fields(&token).count("id");
      if (!id) return base::fail(invalid("an added token has no id"));
      TRY(add_token(token, *id, ids, data));
    }
  }
  return ids;
}

}  // namespace llorch::engine::io::tokenizer_json
