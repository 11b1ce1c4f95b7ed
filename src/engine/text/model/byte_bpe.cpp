#include "engine/text/model/byte_bpe.h"

#include <fmt/format.h>

namespace llorch::engine::text::model {
namespace {

std::uint64_t pair_key(TokenId left, TokenId right) { return std::uint64_t{index(left)} << 32 | index(right); }

}  // namespace

base::Result<std::unique_ptr<const Model>> ByteBpeModel::create(const Vocabulary& vocabulary,
                                                                const std::vector<std::string>& merges,
                                                                ByteBpeOptions options) {
  std::unique_ptr<ByteBpeModel> model(new ByteBpeModel(vocabulary, options));
  model->merges_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    // Neither side is empty, so a first character ' ' would belong to the left side; byte-level spelling has none.
    const std::size_t gap = merge.find(' ', 1);
    const auto side = [&](std::string_view text) {
      const auto bytes = bytes_of_byte_bpe(text);
      return bytes ? vocabulary.find(*bytes) : std::nullopt;
    };
    const auto left = gap == std::string_view::npos ? std::nullopt : side(merge.substr(0, gap));
    const auto right = left ? side(merge.substr(gap + 1)) : std::nullopt;
    const auto joined =
        right ? vocabulary.find(std::string(vocabulary.bytes(*left)).append(vocabulary.bytes(*right))) : std::nullopt;
    if (!joined) {
      return base::fail(base::ErrorCode::kConfigKeyInvalid,
                        fmt::format("tokenizer.ggml.merges[{}] is not a pair of tokens that together are a token; the "
                                    "file's vocabulary and merges do not belong together: convert the model again",
                                    rank));
    }
    model->merges_.try_emplace(pair_key(*left, *right), Joined{static_cast<std::uint32_t>(rank), *joined});
  }
  return std::unique_ptr<const Model>(std::move(model));
}

void ByteBpeModel::encode(std::string_view text, std::vector<TokenId>& out) const {
  MergeLoop loop;
  while (!text.empty()) {
    const std::size_t bytes = first_piece_bytes(options_.pre.pattern, text);
    encode_piece(text.substr(0, bytes), loop, out);
    text.remove_prefix(bytes);
  }
}

void ByteBpeModel::encode_piece(std::string_view piece, MergeLoop& loop, std::vector<TokenId>& out) const {
  if (options_.pre.whole_piece_first) {
    if (const auto token = vocabulary_.find(piece)) {
      out.push_back(*token);
      return;
    }
  }
  loop.clear();
  for (std::size_t i = 0; i < piece.size(); ++i) {
    loop.add(static_cast<std::uint32_t>(i), 1, vocabulary_.byte_token(static_cast<std::uint8_t>(piece[i])));
  }
  loop.run(
      [&](const Symbol& left, const Symbol& right) -> std::optional<Joined> {
        if (!left.token || !right.token) return std::nullopt;
        const auto it = merges_.find(pair_key(*left.token, *right.token));
        if (it == merges_.end()) return std::nullopt;
        return it->second;
      },
      [&](const Symbol& symbol) { out.push_back(symbol.token ? *symbol.token : *options_.unknown); });
}

}  // namespace llorch::engine::text::model
