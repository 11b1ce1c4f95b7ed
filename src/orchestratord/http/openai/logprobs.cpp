#include "orchestratord/http/openai/logprobs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/append.h"
#include "base/json_text.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::openai {
namespace {

std::string& next_element(std::string& list) {
  if (!list.empty()) list += ',';
  return list;
}

// {"token":logprob,...}: of equal texts the likeliest stays, for a key stands once.
void append_top(std::string& out, const std::vector<wire::TokenLogprob>& top) {
  out += '{';
  for (std::size_t i = 0; i < top.size(); ++i) {
    const auto is_same = [&](const wire::TokenLogprob& earlier) { return earlier.token == top[i].token; };
    if (std::any_of(top.begin(), top.begin() + static_cast<std::ptrdiff_t>(i), is_same)) continue;
    if (out.back() != '{') out += ',';
    base::append_json_string(out, top[i].token);
    base::append(out, ":{}", top[i].logprob);
  }
  out += '}';
}

}  // namespace

void LogprobsWriter::add(const streams::TokenView& token) {
  if (!token.logprobs.empty()) {
    if (endpoint_ == Endpoint::kCompletions) {
      add_to_lists(token);
    } else {
      next_element(content_) += token.logprobs;
    }
  }
  code_points_ += std::ranges::count_if(token.t, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

void LogprobsWriter::add_to_lists(const streams::TokenView& token) {
  const auto logprobs = wire::decode<wire::TokenLogprobs>(token.logprobs);
  if (!logprobs) return;  // the relay let none but whole ones pass
  base::append_json_string(next_element(tokens_), logprobs->token);
  next_element(values_) += fmt::format("{}", logprobs->logprob);
  append_top(next_element(tops_), logprobs->top_logprobs);
  next_element(offsets_) += fmt::format("{}", code_points_);
}

void LogprobsWriter::write(std::string& out) {
  if (endpoint_ == Endpoint::kResponses) {
    out.append("[").append(content_).append("]");
  } else if (content_.empty() && tokens_.empty()) {
    out += "null";
  } else if (endpoint_ == Endpoint::kChat) {
    out.append(R"({"content":[)").append(content_).append(R"(],"refusal":null})");
  } else {
    base::append(out, R"({{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":[{}],"text_offset":[{}]}})", tokens_,
                 values_, tops_, offsets_);
  }
  for (std::string* list : {&content_, &tokens_, &values_, &tops_, &offsets_}) list->clear();
}

}  // namespace llorch::orchestratord::http::openai
