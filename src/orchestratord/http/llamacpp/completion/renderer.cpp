#include "orchestratord/http/llamacpp/completion/renderer.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "base/append.h"
#include "base/json_text.h"
#include "base/parse_json.h"
#include "orchestratord/http/llamacpp/errors.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::llamacpp {
namespace {

namespace json = boost::json;

std::string_view stop_type(wire::StopReason reason) {
  switch (reason) {
    case wire::StopReason::kStop: return "word";
    case wire::StopReason::kEos: return "eos";
    case wire::StopReason::kMaxTokens:
    case wire::StopReason::kContext: break;
  }
  return "limit";
}

void append_speed(std::string& out, std::string_view name, std::int64_t count, std::int64_t ms) {
  const auto ratio = [](std::int64_t a, std::int64_t b) {
    return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
  };
  base::append(out, R"("{0}_n":{1},"{0}_ms":{2},"{0}_per_token_ms":{3},"{0}_per_second":{4})", name, count, ms,
               ratio(ms, count), ratio(1000 * count, ms));
}

// The members of `object` that a client lists; one within another by its path, which is its name then.
std::string listed(const std::string& object, const std::vector<std::string>& fields) {
  const json::value whole = base::parse_known_json(object);
  json::object out;
  for (const std::string& field : fields) {
    const json::value* at = &whole;
    for (std::size_t begin = 0; at != nullptr && begin <= field.size();) {
      const std::size_t end = std::min(field.find('/', begin), field.size());
      const json::object* outer = at->if_object();
      at = outer == nullptr ? nullptr : outer->if_contains(std::string_view(field).substr(begin, end - begin));
      begin = end + 1;
    }
    if (at != nullptr) out[field] = *at;
  }
  return json::serialize(out);
}

}  // namespace

CompletionRenderer::CompletionRenderer(CompletionOptions options, chat::AnswerIdentity identity)
    : options_(std::move(options)), identity_(std::move(identity)) {
  head_.headers = options_.stream ? net::http::sse_headers() : net::http::json_response(200, "").headers;
}

void CompletionRenderer::queued(const wire::QueuedEvent& event, const streams::EventId&, std::string&) {
  wait_ = event;
}

void CompletionRenderer::started(const wire::StartedEvent& event, const streams::EventId&, std::string&) {
  wait_.reset();
  seed_ = event.seed;
}

void CompletionRenderer::append_output(std::string& out) {
  out += R"("index":0,"content":)";
  base::append_json_string(out, text_);
  out.append(R"(,"tokens":[)").append(tokens_).append("]");
  if (options_.logprobs) out.append(R"(,"completion_probabilities":[)").append(logprobs_).append("]");
  for (std::string* part : {&text_, &tokens_, &logprobs_}) part->clear();
}

void CompletionRenderer::token(const streams::TokenView& token, const streams::EventId&, std::string& out) {
  if (options_.hides_output) return;
  ++tokens_out_;
  text_ += token.t;
  has_new_line_ = has_new_line_ || token.t.find('\n') != std::string_view::npos;
  if (options_.return_tokens && token.id) {
    base::append(tokens_, "{}{}", tokens_.empty() ? "" : ",", base::index(*token.id));
  }
  if (!token.logprobs.empty()) logprobs_.append(logprobs_.empty() ? "" : ",").append(token.logprobs);
  if (!options_.stream || (text_.empty() && tokens_.empty() && logprobs_.empty())) return;
  out += "data: {";
  append_output(out);
  base::append(out, ",\"stop\":false,\"id_slot\":-1,\"tokens_predicted\":{},\"tokens_evaluated\":{}}}\n\n", tokens_out_,
               options_.tokens_in);
}

std::string CompletionRenderer::last_object(const wire::EndEvent& event) {
  std::string out = "{";
  append_output(out);
  out += R"(,"id_slot":-1,"stop":true,"model":)";
  base::append_json_string(out, options_.model);
  const std::int64_t predicted = options_.hides_output ? 0 : event.tokens_out;
  base::append(out,
               R"(,"tokens_predicted":{},"tokens_evaluated":{},"generation_settings":{{{},"seed":{}}})"
               R"(,"has_new_line":{},"truncated":{},"stop_type":"{}","stopping_word":)",
               predicted, event.tokens_in, options_.settings, seed_, has_new_line_,
               event.stop_reason == wire::StopReason::kContext, stop_type(event.stop_reason));
  base::append_json_string(out, event.stop_reason == wire::StopReason::kStop ? options_.stopping_word : "");
  out += R"(,"timings":{)";
  append_speed(out, "prompt", event.tokens_in, event.first_token_ms);
  out += ',';
  append_speed(out, "predicted", predicted, event.decode_time_ms);
  out.append(R"(},"llorch":)").append(wire::encode(event)).append("}");
  return options_.is_filtered ? listed(out, options_.response_fields) : out;
}

void CompletionRenderer::end(const wire::EndEvent& event, const streams::EventId&, std::string& out) {
  if (options_.stream) out += "data: ";
  out += last_object(event);
  if (options_.stream) out += "\n\n";
}

void CompletionRenderer::error(const wire::ErrorBody& error, const std::optional<streams::EventId>&, std::string& out) {
  net::http::Response response = error_response(wire::to_error(error), identity_.correlation_id);
  if (options_.stream) {
    out.append("data: ").append(response.body).append("\n\n");
    return;
  }
  out += response.body;
  head_ = {.status = response.status, .headers = std::move(response.headers)};
}

void CompletionRenderer::keep_alive(std::string& out) { chat::append_keep_alive(out, wait_); }

}  // namespace llorch::orchestratord::http::llamacpp
