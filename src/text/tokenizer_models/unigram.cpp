#include "text/tokenizer_models/unigram.h"

#include <algorithm>

#include "base/assert.h"
#include "text/unicode/char_class.h"

namespace llorch::text::model {
namespace {

// How much worse than the worst token an unknown character is (SentencePiece's kUnkPenalty).
constexpr double kUnknownPenalty = 10.0;

}  // namespace

UnigramModel::UnigramModel(const Vocabulary& vocabulary, const std::vector<double>& scores, UnigramOptions options)
    : scores_(scores), options_(options) {
  ASSERT(scores.size() == vocabulary.size());
  double worst = 0;
  for (std::uint32_t i = 0; i < scores.size(); ++i) {
    worst = i == 0 ? scores[i] : std::min(worst, scores[i]);
    const std::string_view key = vocabulary.key(TokenId{i});
    if (!key.empty()) trie_.add(key, TokenId{i});
  }
  trie_.settle();
  unknown_score_ = worst - kUnknownPenalty;
}

base::Result<> UnigramModel::encode(std::string_view piece, TextBudget& budget, std::vector<TokenId>& out) const {
  struct Best {
    double score = 0;
    std::size_t begin = SIZE_MAX;  // SIZE_MAX: not reached
    std::optional<TokenId> token;  // none: unknown
  };
  std::vector<Best> best(piece.size() + 1);  // [i]: the best way to write the first i bytes
  best[0].begin = 0;
  const auto offer = [&](std::size_t end, const Best& way) {
    if (best[end].begin == SIZE_MAX || way.score > best[end].score) best[end] = way;
  };
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t char_bytes = unicode::next_char(piece.substr(at)).bytes;
    const double score = best[at].score;
    bool char_is_token = false;
    std::uint32_t node = TokenTrie::kRoot;
    std::size_t end = at;
    for (; end < piece.size(); ++end) {
      node = trie_.child_of(node, piece[end]);
      if (node == TokenTrie::kNone) break;
      const auto token = trie_.node(node).token;
      if (!token) continue;
      offer(end + 1, {score + scores_[index(*token)], at, token});
      char_is_token = char_is_token || end + 1 - at == char_bytes;
    }
    if (!budget.spend_walk(end - at)) return base::fail(budget.too_slow());
    if (!char_is_token) offer(at + char_bytes, {score + unknown_score_, at, std::nullopt});
    at += char_bytes;
  }

  std::vector<std::size_t> ends;  // of the tokens chosen, last first
  for (std::size_t end = piece.size(); end > 0; end = best[end].begin) ends.push_back(end);
  std::reverse(ends.begin(), ends.end());
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const Best& way = best[ends[i]];
    if (way.token) {
      out.push_back(*way.token);
      continue;
    }
    while (options_.fuse_unknown && i + 1 < ends.size() && !best[ends[i + 1]].token) ++i;
    const std::string_view uncovered = piece.substr(way.begin, ends[i] - way.begin);
    if (!options_.fallback.append_bytes(uncovered, out)) options_.fallback.append_uncovered(out);
  }
  return {};
}

}  // namespace llorch::text::model
