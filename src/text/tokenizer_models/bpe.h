#pragma once
// Byte-pair encoding with ranked merges, of bytes or of characters: the best rank merges first, of equal ones the
// leftmost.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/keyed_hash.h"
#include "base/result.h"
#include "text/tokenizer_models/merge.h"
#include "text/tokenizer_models/model.h"
#include "text/tokenizer_models/vocabulary.h"

namespace llorch::text::model {

enum class BpeUnit : std::uint8_t { kByte, kCharacter };

struct BpeOptions {
  BpeUnit unit = BpeUnit::kByte;
  bool whole_piece_first = false;  // a piece that is a token is not merged
  bool fuse_unknown = false;       // unknown characters in a row are one token
  Fallback fallback;               // kByte: byte_level_fallback
};

class BpeModel final : public Model {
 public:
  // `merges`: "left right" in byte-level spelling, best rank first. `vocabulary` must outlive the model.
  // REQUIRES options.fallback.covers_every_text(). CONFIG_KEY_INVALID when a merge is no pair of tokens that form a
  // token.
  static base::Result<std::unique_ptr<const Model>> create(const Vocabulary& vocabulary,
                                                           std::span<const std::string> merges, BpeOptions options);
  // The same by ids. Merges of or into tokens that the model may not make are left out. UNSUPPORTED_TOKENIZER when all of them join
  // more bytes than those of any tokenizer do.
  static base::Result<std::unique_ptr<const Model>> create(const Vocabulary& vocabulary,
                                                           std::span<const MergeIds> merges, BpeOptions options);
  base::Result<> encode(std::string_view piece, TextBudget& budget, std::vector<TokenId>& out) const override;

 private:
  BpeModel(const Vocabulary& vocabulary, const BpeOptions& options) : vocabulary_(vocabulary), options_(options) {}
  void add_merge(MergeIds pair, Joined joined);
  void add_characters(std::string_view piece, MergeLoop& loop) const;
  std::size_t bytes_of_unknown(std::string_view text) const;

  const Vocabulary& vocabulary_;
  BpeOptions options_;
  std::unordered_map<std::uint64_t, Joined, base::KeyedHash> merges_;  // by (left id, right id)
};

}  // namespace llorch::text::model
