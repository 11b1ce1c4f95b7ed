#include "text/tokenizer_models/spm.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/assert.h"
#include "base/utf8.h"
#include "text/tokenizer_models/merge.h"
#include "text/tokenizer_models/spelling.h"

namespace llorch::text::model {
SpmModel::SpmModel(const Vocabulary& vocabulary, const std::vector<double>& scores, SpmOptions options)
    : vocabulary_(vocabulary), ranks_(scores.size()), options_(options) {
  ASSERT(scores.size() == vocabulary.size());
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return scores[a] > scores[b]; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    ranks_[order[i]] = ranks_[order[i - 1]] + (scores[order[i]] < scores[order[i - 1]] ? 1 : 0);
  }
}

base::Result<> SpmModel::encode(std::string_view raw, TextBudget& budget, std::vector<TokenId>& out) const {
  const std::string text = (options_.add_space_prefix ? " " : "") + spm_plain_spaces(raw);
  const auto slice = [&](const Symbol& first, std::size_t bytes) {
    return std::string_view(text).substr(first.begin, bytes);
  };
  MergeLoop loop;
  for (std::size_t i = 0; i < text.size();) {
    const base::Utf8Step step = base::next_code_point(std::string_view(text).substr(i));
    const std::size_t bytes = step.status == base::Utf8Status::kComplete ? step.bytes : 1;
    loop.add(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(bytes),
             vocabulary_.find(std::string_view(text).substr(i, bytes)));
    i += bytes;
  }
  bool has_steps = true;
  loop.run(
      [&](const Symbol& left, const Symbol& right) -> std::optional<Joined> {
        const std::size_t bytes = left.bytes + right.bytes;
        if (bytes > vocabulary_.key_bytes_max()) return std::nullopt;
        has_steps = has_steps && budget.spend_hash(bytes);
        const auto token = has_steps ? vocabulary_.find(slice(left, bytes)) : std::nullopt;
        if (!token) return std::nullopt;
        return Joined{ranks_[index(*token)], *token};
      },
      [&](const Symbol& symbol) {
        if (symbol.token) {
          out.push_back(*symbol.token);
          return;
        }
        const Fallback& fallback = options_.fallback;
        if (!fallback.append_bytes(slice(symbol, symbol.bytes), out)) fallback.append_uncovered(out);
      });
  if (!has_steps) return base::fail(budget.too_slow());
  return {};
}

}  // namespace llorch::text::model
