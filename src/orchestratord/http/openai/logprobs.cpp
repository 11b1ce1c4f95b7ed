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

std::int64_t code_points_in(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
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
      // The relay let none but whole ones pass.
      if (const auto logprobs = wire::decode<wire::TokenLogprobs>(token.logprobs)) add_to_lists(*logprobs);
    } else {
      next_element(content_) += token.logprobs;
    }
  }
  code_points_ += code_points_in(token.t);
}

std::string LogprobsWriter::add_prompt(const streams::TokenView& token, std::string_view text) {
  const auto logprobs = wire::decode<wire::PromptTokenLogprobs>(token.logprobs);
  if (!logprobs) return {};
  add_to_lists(*logprobs);
  std::string bytes(logprobs->bytes.begin(), logprobs->bytes.end());
  // Some tokenizers put a space before a text.
  const bool is_put = code_points_ == 0 && !text.empty() && bytes.starts_with(' ') && !text.starts_with(' ');
  code_points_ += code_points_in(bytes) - is_put;
  return bytes;
}

// `logprob` is a number, or a number or nothing.
template <class Logprobs>
void LogprobsWriter::add_to_lists(const Logprobs& logprobs) {
  const std::optional<double> logprob = logprobs.logprob;
  base::append_json_string(next_element(tokens_), logprobs.token);
  next_element(values_) += logprob ? fmt::format("{}", *logprob) : "null";
  if (logprob) {
    append_top(next_element(tops_), logprobs.top_logprobs);
  } else {
    next_element(tops_) += "null";
  }
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
