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

void keep_first(std::vector<wire::TokenLogprob>& list, std::size_t count) {
  if (list.size() > count) list.erase(list.begin() + static_cast<std::ptrdiff_t>(count), list.end());
}

// `rank`: 1 is the likeliest; absent: not known.
void append_ranked(std::string& out, std::int64_t id, double logprob, std::optional<std::size_t> rank,
                   std::string_view token) {
  base::append(out, R"("{}":{{"logprob":{},"rank":{},"decoded_token":)", id, logprob,
               rank ? fmt::format("{}", *rank) : "null");
  base::append_json_string(out, token);
  out += '}';
}

}  // namespace

void LogprobsWriter::add(const streams::TokenView& token) {
  const bool as_it_is = endpoint_ != Endpoint::kCompletions && !top_max_;
  if (as_it_is && !token.logprobs.empty()) {
    next_element(content_) += token.logprobs;
  } else if (!token.logprobs.empty()) {
    // The relay let none but whole ones pass.
    if (auto logprobs = wire::decode<wire::TokenLogprobs>(token.logprobs)) {
      if (top_max_) keep_first(logprobs->top_logprobs, static_cast<std::size_t>(*top_max_));
      if (endpoint_ == Endpoint::kCompletions) {
        add_to_lists(*logprobs);
      } else {
        next_element(content_) += wire::encode(*logprobs);
      }
    }
  }
  code_points_ += code_points_in(token.t);
}

std::string LogprobsWriter::add_prompt(const streams::TokenView& token, std::string_view text) {
  auto logprobs = wire::decode<wire::PromptTokenLogprobs>(token.logprobs);
  if (!logprobs) return {};
  if (top_max_) keep_first(logprobs->top_logprobs, static_cast<std::size_t>(*top_max_));
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

void PromptLogprobsWriter::add(const streams::TokenView& token) {
  auto told = wire::decode<wire::PromptTokenLogprobs>(token.logprobs);
  if (!told) return;  // the relay let none but whole ones pass
  std::string& out = next_element(tokens_);
  if (!told->logprob) {
    out += "null";
    return;
  }
  keep_first(told->top_logprobs, likeliest_);
  const auto& top = told->top_logprobs;
  const auto own = std::ranges::find(top, told->id, &wire::TokenLogprob::id);
  const auto rank_of = [&](auto it) { return static_cast<std::size_t>(it - top.begin()) + 1; };
  out += '{';
  append_ranked(out, told->id, *told->logprob, own == top.end() ? std::nullopt : std::optional(rank_of(own)),
                told->token);
  for (auto it = top.begin(); it != top.end(); ++it) {
    if (it == own) continue;
    out += ',';
    append_ranked(out, it->id, it->logprob, rank_of(it), it->token);
  }
  out += '}';
}

void PromptLogprobsWriter::write(std::string& out) const { out.append("[").append(tokens_).append("]"); }

}  // namespace llorch::orchestratord::http::openai
