#include "cli/determinism/corpus.h"

#include <algorithm>
#include <boost/json.hpp>

#include "base/philox.h"
#include "wire/json.h"
#include "wire/worker.h"
#include "worker/sampling/wire.h"

namespace llorch::cli::determinism {
namespace {

namespace bj = boost::json;

constexpr std::uint32_t kContextTokensMin = 64;

base::TokenId prompt_token(std::uint64_t seed, std::uint32_t position, std::uint32_t vocab) {
  const auto block = base::philox(seed, {.position = position, .purpose = base::PhiloxPurpose::kTestWeights});
  return base::TokenId{static_cast<std::uint32_t>(std::uint64_t{block[0]} * vocab >> 32)};
}

// {"tokens": 140, "shared": {"seed": 1002, "tokens": 64}}
struct PromptRule {
  std::uint32_t tokens = 0;
  std::uint64_t shared_seed = 0;
  std::uint32_t shared_tokens = 0;
};

base::Result<std::uint64_t> number(const bj::object& parent, std::string_view key) {
  const bj::value* value = parent.if_contains(key);
  if (value == nullptr || !value->is_int64() || value->get_int64() < 1) {
    return base::fail(base::ErrorCode::kInvalidParams, "the corpus lacks a count or seed");
  }
  return static_cast<std::uint64_t>(value->get_int64());
}

base::Result<PromptRule> prompt_rule(const bj::object& prompt) {
  PromptRule rule{.tokens = static_cast<std::uint32_t>(TRY(number(prompt, "tokens")))};
  if (const bj::value* shared = prompt.if_contains("shared"); shared != nullptr && shared->is_object()) {
    rule.shared_seed = TRY(number(shared->get_object(), "seed"));
    rule.shared_tokens = static_cast<std::uint32_t>(TRY(number(shared->get_object(), "tokens")));
  }
  return rule;
}

// Everything but `prompt` is spelled as in a request to a worker, and checked by the same rules.
base::Result<Request> make_request(bj::object entry, const ModelShape& model) {
  const bj::value* prompt = entry.if_contains("prompt");
  if (prompt == nullptr || !prompt->is_object()) {
    return base::fail(base::ErrorCode::kInvalidParams, "a request of the corpus has no prompt");
  }
  const PromptRule rule = TRY(prompt_rule(prompt->get_object()));
  entry.erase("prompt");
  entry["job_id"] = "corpus";
  entry["prompt_tokens"] = bj::array{0};
  const auto wire = TRY(wire::decode<wire::ExecuteRequest>(bj::serialize(entry), wire::UnknownKeys::kRefuse));
  if (!wire.seed) return base::fail(base::ErrorCode::kInvalidParams, "a request of the corpus has no seed");
  Request request{.seed = *wire.seed, .max_tokens = static_cast<std::uint32_t>(wire.max_tokens)};
  request.sampling = worker::sampling::engine_params(wire, *wire.seed);
  TRY(engine::sampling::validate(request.sampling, model.vocab));
  const std::uint32_t tokens =
      std::min(rule.tokens, model.context_tokens - std::min(request.max_tokens, kContextTokensMin / 2));
  for (std::uint32_t i = 0; i < tokens; ++i) {
    request.prompt.push_back(prompt_token(i < rule.shared_tokens ? rule.shared_seed : request.seed, i, model.vocab));
  }
  request.max_tokens = std::min(request.max_tokens, model.context_tokens - tokens);
  return request;
}

}  // namespace

base::Result<std::vector<Request>> make_corpus(std::string_view json, const ModelShape& model) {
  if (model.context_tokens < kContextTokensMin) {
    return base::fail(base::ErrorCode::kInvalidParams, "the corpus needs a context of at least 64 tokens");
  }
  boost::system::error_code ec;
  const bj::value parsed = bj::parse(json, ec);
  const bj::value* requests = !ec && parsed.is_object() ? parsed.get_object().if_contains("requests") : nullptr;
  if (requests == nullptr || !requests->is_array() || requests->get_array().empty()) {
    return base::fail(base::ErrorCode::kInvalidParams, "the corpus holds no requests");
  }
  std::vector<Request> corpus;
  for (const bj::value& entry : requests->get_array()) {
    if (!entry.is_object()) return base::fail(base::ErrorCode::kInvalidParams, "a request of the corpus is no object");
    corpus.push_back(TRY(make_request(entry.get_object(), model)));
  }
  return corpus;
}

std::vector<Request> thin_out(std::vector<Request> corpus, std::size_t count) {
  if (count == 0 || count >= corpus.size()) return corpus;
  std::vector<Request> kept;
  for (std::size_t i = 0; i < count; ++i) kept.push_back(std::move(corpus[i * corpus.size() / count]));
  return kept;
}

}  // namespace llorch::cli::determinism
