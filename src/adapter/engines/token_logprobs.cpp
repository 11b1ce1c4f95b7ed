#include "adapter/engines/token_logprobs.h"

#include <cmath>

#include "wire/worker.h"

namespace llorch::adapter::engines {
namespace {

namespace bj = boost::json;

bool read_bytes(const bj::value* list, std::vector<std::uint8_t>& out) {
  if (list == nullptr || list->is_null()) return true;  // of a control token
  if (!list->is_array()) return false;
  for (const bj::value& byte : list->get_array()) {
    const auto number = number_of(&byte);
    if (!number || *number < 0 || *number > 0xff) return false;
    out.push_back(static_cast<std::uint8_t>(*number));
  }
  return true;
}

template <class Token>
bool read_token(const bj::value& value, Token& out) {
  const auto id = number_of(member(&value, "id"));
  const bj::value* logprob = member(&value, "logprob");
  if (!id || *id < 0 || *id > wire::kTokenIdMax || logprob == nullptr || !logprob->is_number()) return false;
  out.id = *id;
  out.logprob = logprob->to_number<double>();
  out.token = text_of(member(&value, "token")).value_or("");
  return std::isfinite(out.logprob) && read_bytes(member(&value, "bytes"), out.bytes);
}

}  // namespace

std::vector<wire::TokenLogprobs> token_logprobs(const bj::value* list) {
  std::vector<wire::TokenLogprobs> out;
  if (list == nullptr || !list->is_array()) return out;
  for (const bj::value& value : list->get_array()) {
    wire::TokenLogprobs& token = out.emplace_back();
    if (!read_token(value, token)) return {};
    const bj::value* top = member(&value, "top_logprobs");
    if (top == nullptr || !top->is_array()) continue;
    for (const bj::value& other : top->get_array()) {
      if (!read_token(other, token.top_logprobs.emplace_back())) return {};
    }
  }
  return out;
}

}  // namespace llorch::adapter::engines
