#include "text/tokenizer_models/bpe.h"

#include <fmt/format.h>

#include "text/tokenizer_models/spelling.h"
#include "text/unicode/char_class.h"

namespace llorch::text::model {
namespace {

// Of all merges that are told by ids, each of which has the bytes of both tokens joined and looked for. Those of the largest public
// tokenizer have some 10 MB.
constexpr std::size_t kJoinedBytesMax = 256u << 20;

std::uint64_t pair_key(TokenId left, TokenId right) { return std::uint64_t{index(left)} << 32 | index(right); }

base::Error bad_merge(std::size_t rank) {
  return {base::ErrorCode::kConfigKeyInvalid,
          fmt::format("merge {} of the tokenizer is not a pair of tokens that together are a token; its vocabulary and "
                      "merges do not belong together: convert or download the model again",
                      rank),
          {}};
}

std::optional<MergeIds> parse_merge(std::string_view merge, const Vocabulary& vocabulary) {
  // Neither side is empty, so a first character ' ' would belong to the left side; byte-level spelling has none.
  const std::size_t gap = merge.find(' ', 1);
  if (gap == std::string_view::npos) return std::nullopt;
  const auto side = [&](std::string_view text) {
    const auto bytes = bytes_of_byte_bpe(text);
    return bytes ? vocabulary.find(*bytes) : std::nullopt;
  };
  const auto left = side(merge.substr(0, gap)), right = side(merge.substr(gap + 1));
  if (!left || !right) return std::nullopt;
  return MergeIds{*left, *right};
}

std::optional<TokenId> joined(MergeIds pair, const Vocabulary& vocabulary) {
  return vocabulary.find(std::string(vocabulary.key(pair.left)).append(vocabulary.key(pair.right)));
}

}  // namespace

void BpeModel::add_merge(MergeIds pair, Joined joined) { merges_.try_emplace(pair_key(pair.left, pair.right), joined); }

base::Result<std::unique_ptr<const Model>> BpeModel::create(const Vocabulary& vocabulary,
                                                            std::span<const std::string> merges, BpeOptions options) {
  std::unique_ptr<BpeModel> model(new BpeModel(vocabulary, options));
  model->merges_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto pair = parse_merge(merges[rank], vocabulary);
    const auto token = pair ? joined(*pair, vocabulary) : std::nullopt;
    if (!token) return base::fail(bad_merge(rank));
    model->add_merge(*pair, {static_cast<std::uint32_t>(rank), *token});
  }
  return std::unique_ptr<const Model>(std::move(model));
}

base::Result<std::unique_ptr<const Model>> BpeModel::create(const Vocabulary& vocabulary,
                                                            std::span<const MergeIds> merges, BpeOptions options) {
  std::unique_ptr<BpeModel> model(new BpeModel(vocabulary, options));
  model->merges_.reserve(merges.size());
  std::size_t joined_bytes = 0;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const MergeIds pair = merges[rank];
    if (index(pair.left) >= vocabulary.size() || index(pair.right) >= vocabulary.size()) {
      return base::fail(bad_merge(rank));
    }
    joined_bytes += vocabulary.key(pair.left).size() + vocabulary.key(pair.right).size();
    if (joined_bytes > kJoinedBytesMax) {
      return base::fail(base::ErrorCode::kUnsupportedTokenizer,
                        fmt::format("the merges of the tokenizer join more than {} bytes in all; use the model's GGUF",
                                    kJoinedBytesMax));
    }
    // Text cannot spell a control token, so no merge may lead to one; one that leads nowhere says nothing either.
    if (vocabulary.key(pair.left).empty() || vocabulary.key(pair.right).empty()) continue;
    if (const auto token = joined(pair, vocabulary)) {
      model->add_merge(pair, {static_cast<std::uint32_t>(rank), *token});
    }
  }
  return std::unique_ptr<const Model>(std::move(model));
}

// Bytes of the longest beginning of non-empty `text` that is one unknown token; 0 when its first character is known.
std::size_t BpeModel::bytes_of_unknown(std::string_view text) const {
  std::size_t bytes = 0;
  std::vector<TokenId> ignored;
  while (bytes < text.size() && (bytes == 0 || options_.fuse_unknown)) {
    const std::size_t next = unicode::next_char(text.substr(bytes)).bytes;
    const std::string_view character = text.substr(bytes, next);
    ignored.clear();
    if (vocabulary_.find(character) || options_.fallback.append_bytes(character, ignored)) break;
    bytes += next;
  }
  return bytes;
}

void BpeModel::add_characters(std::string_view piece, MergeLoop& loop) const {
  std::vector<TokenId> byte_tokens;
  for (std::size_t i = 0; i < piece.size();) {
    const auto at = static_cast<std::uint32_t>(i);
    const std::size_t bytes = unicode::next_char(piece.substr(i)).bytes;
    const std::string_view character = piece.substr(i, bytes);
    byte_tokens.clear();
    if (const auto token = vocabulary_.find(character)) {
      loop.add(at, static_cast<std::uint32_t>(bytes), token);
      i += bytes;
    } else if (options_.fallback.append_bytes(character, byte_tokens)) {
      for (std::uint32_t b = 0; b < bytes; ++b) loop.add(at + b, 1, byte_tokens[b]);
      i += bytes;
    } else {
      const std::size_t unknown_bytes = bytes_of_unknown(piece.substr(i));
      loop.add(at, static_cast<std::uint32_t>(unknown_bytes), std::nullopt);
      i += unknown_bytes;
    }
  }
}

// Merges go by ids, so that long tokens cost no more than short ones.
base::Result<> BpeModel::encode(std::string_view piece, TextBudget&, std::vector<TokenId>& out) const {
  if (options_.whole_piece_first) {
    if (const auto token = vocabulary_.find(piece)) {
      out.push_back(*token);
      return {};
    }
  }
  MergeLoop loop;
  if (options_.unit == BpeUnit::kCharacter) {
    add_characters(piece, loop);
  } else {
    for (std::size_t i = 0; i < piece.size(); ++i) {
      loop.add(static_cast<std::uint32_t>(i), 1, options_.fallback.byte_tokens[static_cast<std::uint8_t>(piece[i])]);
    }
  }
  loop.run(
      [&](const Symbol& left, const Symbol& right) -> std::optional<Joined> {
        if (!left.token || !right.token) return std::nullopt;
        const auto it = merges_.find(pair_key(*left.token, *right.token));
        if (it == merges_.end()) return std::nullopt;
        return it->second;
      },
      [&](const Symbol& symbol) {
        if (symbol.token) {
          out.push_back(*symbol.token);
        } else {
          options_.fallback.append_uncovered(out);
        }
      });
  return {};
}

}  // namespace llorch::text::model
