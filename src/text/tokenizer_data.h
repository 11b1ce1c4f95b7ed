#pragma once
// What a model file says about its tokenizer, free of any file format, and its form on the wire: pool-managerd serves it
// under GET /v2/models/{digest}/tokenizer so that orchestratord can count tokens at admission.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "text/pipeline.h"

namespace llorch::text {

using base::TokenId;

// Values of GGUF's tokenizer.ggml.token_type.
enum class TokenKind : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct NamedChatTemplate {
  std::string name, text;
  bool operator==(const NamedChatTemplate&) const = default;
};

// How a token of a tokenizer.json that is found as spelled is found.
struct AddedTokenRule {
  TokenId id;
  bool lstrip = false, rstrip = false;  // takes the spaces at its side
  bool single_word = false;             // only where no word character touches it
  bool normalized = false;              // as the normalizer spells it, in normalized text
  bool outside_model = false;           // the model never makes it
  bool operator==(const AddedTokenRule&) const = default;
};

// How a tokenizer tells two texts as one: between them, behind what is put around every text, and what the second text and its
// suffix count as (type ids).
struct PairRule {
  std::vector<TokenId> between;
  std::uint32_t second_type = 0;
  bool operator==(const PairRule&) const = default;
};

struct MergeIds {
  TokenId left, right;
  bool operator==(const MergeIds&) const = default;
};

// What only a tokenizer.json says.
struct TokenizerJson {
  Pipeline pipeline;
  std::vector<AddedTokenRule> added;    // tokens that differ from the rule "as spelled, in the raw text"
  std::vector<MergeIds> merges;         // "bpe": best rank first
  bool byte_fallback = false;           // a character without a token is spelled in byte tokens
  bool fuse_unknown = false;            // unknown characters in a row are one token
  bool whole_piece_first = false;       // "bpe": a piece that is a token is not merged
  std::vector<TokenId> prefix, suffix;  // around every text with EncodeOptions::add_special
  std::optional<PairRule> pair;         // absent: it tells no pairs
  bool operator==(const TokenizerJson&) const = default;
};

// The tokens of fill in the middle that a file names: before what stands before, before what comes after, before what is wanted; and
// what fills a row, begins a repository, stands between files.
struct InfillTokens {
  std::optional<TokenId> prefix, suffix, middle, pad, repository, separator;
  bool operator==(const InfillTokens&) const = default;
};

struct TokenizerData {
  // GGUF: "llama" (SPM), "gpt2" (byte-level BPE), as the file spells it. tokenizer.json, and GGUF's
  // "bert" as the same: "bpe", "unigram", "wordpiece".
  std::string model;
  std::string pre;  // name of the pre-tokenizer; "gpt2" only
  std::vector<std::string> tokens;
  std::vector<double> scores;       // one per token for "llama" and "unigram", else empty
  std::vector<TokenKind> kinds;     // one per token, or empty: all normal
  std::vector<std::string> merges;  // "left right", best rank first; "gpt2" only
  std::optional<TokenId> bos, eos, eot, eom, unknown;
  std::vector<TokenId> more_end_of_generation;  // e.g. what a generation_config adds to eos
  // Absent: the default of the model and pre-tokenizer.
  std::optional<bool> add_bos, add_eos, add_space_prefix;
  std::string chat_template;  // the default one as the file has it; empty: none
  std::vector<NamedChatTemplate> named_chat_templates;
  InfillTokens infill;  // only what the file says; infill/infill.h has what its vocabulary tells
  TokenizerJson json;   // models of a tokenizer.json only

  bool operator==(const TokenizerData&) const = default;
};

// Gives the tokenizer a token for each row of the model's table and no other, so that one number counts both. Rows behind the last
// token become unused tokens, which nothing spells. Tokens behind the last row go where they are markers that this model lacks, as a
// text model of a family has one for images; nothing spells them then. Errors: MODEL_INCOMPATIBLE, the tokenizer needs such a token.
base::Result<> fit_to_rows(TokenizerData& data, std::int64_t rows);

// Bounds of both directions. Largest public vocabulary: 262,144 tokens, 580,604 merges; longest token: 1 KiB.
struct TokenizerLimits {
  static constexpr std::size_t kTokensMax = 1u << 20;
  static constexpr std::size_t kMergesMax = 1u << 21;
  static constexpr std::size_t kStringBytesMax = 1u << 14;
  // Of all tokens together; those of public vocabularies have a few MB. Tables of their beginnings take some sixty times as much.
  static constexpr std::size_t kTokensBytesMax = 1u << 24;
  static constexpr std::size_t kChatTemplateBytesMax = 1u << 18;  // largest public one: 26 KiB
  static constexpr std::size_t kNamedChatTemplatesMax = 64;
  static constexpr std::size_t kStepsMax = 64;  // of each part of a pipeline
  static constexpr std::size_t kAffixMax = 16;  // tokens before or after a text
};

// Whether all tokens together have more bytes than TokenizerLimits.
bool has_too_long_tokens(const std::vector<std::string>& tokens);

// The blob: "LLTK", u32 version, then the fields in the order above, little-endian. Equal data gives equal bytes.
// MODEL_INCOMPATIBLE: the data is not within TokenizerLimits.
base::Result<std::string> serialize(const TokenizerData& data);
// Safe on hostile bytes: allocates no more than a small multiple of their length.
// CORRUPT_FILE, UNSUPPORTED_FORMAT_VERSION. Whether the data makes a tokenizer is Tokenizer::create's to say.
base::Result<TokenizerData> parse_tokenizer_data(std::span<const std::byte> blob);

}  // namespace llorch::text
