#include "orchestratord/http/tasks/embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "base/sha256.h"
#include "orchestratord/http/tasks/prompt.h"
#include "text/text_budget.h"
#include "wire/request_limits.h"

namespace llorch::orchestratord::http::tasks {
namespace {

using base::Error;
using base::ErrorCode;

Error invalid_field(std::string field, std::string reason, std::string message) {
  return Error{ErrorCode::kInvalidParams, std::move(message), {}}
      .with("field", std::move(field))
      .with("reason", std::move(reason));
}

std::vector<std::int32_t> ids_of(const std::vector<base::TokenId>& tokens) {
  std::vector<std::int32_t> out;
  out.reserve(tokens.size());
  for (const base::TokenId id : tokens) out.push_back(static_cast<std::int32_t>(index(id)));
  return out;
}

// The query and the document as one, in the model's words.
base::Result<std::vector<std::int32_t>> pair_of(const std::string& query, const std::string& document,
                                                const models::KnownModel& model, base::Time now,
                                                text::TextBudget& budget, std::uint64_t& template_steps) {
  const auto at = std::chrono::floor<std::chrono::seconds>(
      std::chrono::sys_time<std::chrono::milliseconds>(std::chrono::milliseconds(now.unix_ms)));
  if (const auto told = TRY(model.chat->pair_prompt(*model.tokenizer, query, document, at, &budget, &template_steps)))
    return ids_of(told->tokens);
  const auto pair = TRY(model.tokenizer->encode_pair(query, document, &budget));
  if (!pair) {
    return base::fail(
        invalid_field("query", "unsupported",
                      "this model's files do not say how a query and a document are told together: "
                      "neither a template named rerank, nor a chat template with these roles, nor its tokenizer"));
  }
  std::vector<std::int32_t> ids = ids_of(pair->tokens);
  for (std::size_t i = pair->second_begin; i < ids.size(); ++i)
    ids[i] |= static_cast<std::int32_t>(pair->second_type << wire::kTokenTypeShift);
  return ids;
}

base::Result<std::vector<std::int32_t>> tokens_of(const wire::TextOrTokens& input, std::size_t number,
                                                  const models::KnownModel& model, text::TextBudget& budget) {
  if (!input.has_tokens()) return ids_of(TRY(model.tokenizer->encode(input.text, {.budget = &budget})));
  TRY(check_ids("input", fmt::format("input {}", number), input.tokens, model));
  return input.tokens;
}

// How many tokens at the end of `tokens` are the tokenizer's own; none of an input of ids.
base::Result<std::size_t> closing_count(const wire::TextOrTokens& input, const std::vector<std::int32_t>& tokens,
                                        const text::Tokenizer& tokenizer, text::TextBudget& budget) {
  if (input.has_tokens()) return 0u;
  const std::vector<std::int32_t> own =
      ids_of(TRY(tokenizer.encode(input.text, {.add_special = false, .budget = &budget})));
  const auto at = std::search(tokens.begin(), tokens.end(), own.begin(), own.end());
  return at == tokens.end() ? std::size_t{0} : static_cast<std::size_t>(tokens.end() - at) - own.size();
}

// The first tokens of the input, and those that close it: `count` in all.
base::Result<std::vector<std::int32_t>> cut(const wire::TextOrTokens& input, std::vector<std::int32_t> tokens,
                                            std::size_t count, const text::Tokenizer& tokenizer,
                                            text::TextBudget& budget) {
  const std::size_t closing = std::min(TRY(closing_count(input, tokens, tokenizer, budget)), count);
  const auto keeps = [](std::size_t n) { return static_cast<std::ptrdiff_t>(n); };
  tokens.erase(tokens.begin() + keeps(count - closing), tokens.end() - keeps(closing));
  return tokens;
}

void add_digest(base::Sha256& hash, const wire::TextOrTokens& input) {
  const base::Sha256Digest digest = wire::digest_of(input);
  hash.update(std::as_bytes(std::span(digest)));
}

}  // namespace

base::Result<> check_workload(const wire::SubmitRequest& request, const wire::ModelFacts& facts) {
  const wire::Workload wanted = request.workload.value_or(wire::Workload::kCompletion),
                       done = models::workload_of(facts);
  if (wanted == done) return {};
  const auto reason = [done]() -> std::string_view {
    switch (done) {
      case wire::Workload::kCompletion:
        return "this model writes text and makes neither embeddings nor scores; name a model whose files say how its "
               "rows are pooled";
      case wire::Workload::kEmbedding:
        return "this model makes embeddings and nothing else; send `input` with workload embedding, or name another "
               "model";
      case wire::Workload::kRerank:
        return "this model judges documents and does nothing else; send `query` and `input` with workload rerank, or "
               "name another model";
    }
    return "";
  };
  return base::fail(invalid_field("workload", "unsupported", std::string(reason())));
}

base::Result<EmbeddingPrompt> embedding_prompt(const wire::SubmitRequest& request, const models::KnownModel& model,
                                               std::int64_t context_tokens, LongInputs long_inputs, base::Time now) {
  const std::int64_t dimensions = model.facts.embedding_dimensions.value_or(1);
  if (request.dimensions > dimensions) {
    return base::fail(
        invalid_field("dimensions", "range",
                      fmt::format("dimensions is {}; vectors of this model have {}", *request.dimensions, dimensions)));
  }
  EmbeddingPrompt prompt;
  prompt.order.dimensions = request.dimensions;
  base::Sha256 hash;
  text::TextBudget budget = text::TextBudget::of_texts();
  std::uint64_t template_steps = 0;
  if (request.query) {
    prompt.order.scores = true;
    add_digest(hash, {.text = *request.query, .tokens = {}});
  }
  for (const wire::TextOrTokens& input : request.input->inputs) {
    const std::size_t number = prompt.order.input_tokens.size();
    std::vector<std::int32_t> tokens =
        TRY(request.query ? pair_of(*request.query, input.text, model, now, budget, template_steps)
                          : tokens_of(input, number, model, budget));
    const bool is_cut = long_inputs == LongInputs::kCut && context_tokens > 0 &&
                        static_cast<std::int64_t>(tokens.size()) > context_tokens;
    if (is_cut) {
      tokens = TRY(cut(input, std::move(tokens), static_cast<std::size_t>(context_tokens), *model.tokenizer, budget));
      prompt.cut_inputs.push_back(static_cast<std::int64_t>(number));
    }
    const auto count = static_cast<std::int64_t>(tokens.size());
    if (count == 0) return base::fail(invalid_field("input", "empty", fmt::format("input {} has no tokens", number)));
    if (context_tokens > 0 && count > context_tokens) {
      return base::fail(
          invalid_field("input", "CONTEXT_TOO_LARGE",
                        fmt::format("input {} has {} tokens{}; the context of this model has {} here. "
                                    "Nothing is cut off: send it in parts",
                                    number, count, request.query ? " with the query" : "", context_tokens))
              .with("tokens_in", count)
              .with("context_tokens", context_tokens));
    }
    if (std::cmp_greater(prompt.tokens.size() + tokens.size(), wire::kInputTokensMax)) {
      return base::fail(invalid_field("input", "length",
                                      fmt::format("the inputs up to input {} have more than {} tokens together; send "
                                                  "them in several requests",
                                                  number, wire::kInputTokensMax)));
    }
    prompt.tokens.insert(prompt.tokens.end(), tokens.begin(), tokens.end());
    prompt.order.input_tokens.push_back(count);
    add_digest(hash, is_cut ? wire::TextOrTokens{.tokens = std::move(tokens)} : input);
  }
  prompt.sha256 = base::to_hex(hash.digest());
  return prompt;
}

}  // namespace llorch::orchestratord::http::tasks
