#include "orchestratord/http/openai/renderers.h"

#include "base/json_text.h"
#include "net/sse/sse.h"
#include "orchestratord/http/openai/errors.h"

namespace llorch::orchestratord::http::openai {
namespace {

net::http::Headers with_request_id(net::http::Headers headers, const base::CorrelationId& correlation_id) {
  headers.set("X-Request-Id", correlation_id.value);
  return headers;
}

}  // namespace

ChunkRenderer::ChunkRenderer(const AnswerOptions& options, const AnswerIdentity& identity)
    : options_(options),
      correlation_id_(identity.correlation_id),
      opening_("data: " + opening(options, identity) + R"(,"choices":[)"),
      no_usage_(options.include_usage ? R"(,"usage":null)" : ""),
      logprobs_(options.endpoint) {}

streams::Renderer::Head ChunkRenderer::head() const {
  return {.status = 200, .headers = with_request_id(net::http::sse_headers(), correlation_id_)};
}

void ChunkRenderer::queued(const wire::QueuedEvent& event, const streams::EventId&, std::string& out) {
  append_wait(out, event);
}

void ChunkRenderer::started(const wire::StartedEvent&, const streams::EventId&, std::string& out) { begin(out); }

// The role, or the text of the prompt.
void ChunkRenderer::begin(std::string& out) {
  if (begun_) return;
  begun_ = true;
  if (options_.endpoint == Endpoint::kChat) {
    out += opening_;
    out +=
        R"({"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}])";
    out.append(no_usage_).append("}\n\n");
  } else if (!options_.echo.empty()) {
    append_text(options_.echo, out);
  }
}

void ChunkRenderer::append_text(std::string_view text, std::string& out) {
  const bool chat = options_.endpoint == Endpoint::kChat;
  out += opening_;
  out += chat ? R"({"index":0,"delta":{"content":)" : R"({"index":0,"text":)";
  base::append_json_string(out, text);
  out += chat ? R"(},"logprobs":)" : R"(,"logprobs":)";
  logprobs_.write(out);
  out.append(R"(,"finish_reason":null}])").append(no_usage_).append("}\n\n");
}

void ChunkRenderer::token(const streams::TokenView& token, const streams::EventId&, std::string& out) {
  begin(out);
  if (options_.logprobs) logprobs_.add(token);
  if (!token.t.empty() || options_.logprobs) append_text(token.t, out);
}

void ChunkRenderer::end(const wire::EndEvent& event, const streams::EventId&, std::string& out) {
  begin(out);
  out += opening_;
  out += options_.endpoint == Endpoint::kChat ? R"({"index":0,"delta":{})" : R"({"index":0,"text":"")";
  out.append(R"(,"logprobs":null,"finish_reason":")").append(finish_reason(event.stop_reason)).append(R"("}])");
  out += no_usage_;
  append_provenance(out, event);
  out += "}\n\n";
  if (options_.include_usage) {
    out.append(opening_).append(R"(],"usage":)");
    append_usage(out, event);
    out += "}\n\n";
  }
  out += "data: [DONE]\n\n";
}

void ChunkRenderer::error(const wire::ErrorBody& error, const std::optional<streams::EventId>&, std::string& out) {
  out += "data: ";
  append_error(out, error);
  out += "\n\n";
}

void ChunkRenderer::keep_alive(std::string& out) { net::sse::append_comment(out, "keep-alive"); }

BodyRenderer::BodyRenderer(const AnswerOptions& options, const AnswerIdentity& identity)
    : options_(options),
      correlation_id_(identity.correlation_id),
      opening_(opening(options, identity)),
      logprobs_(options.endpoint),
      text_(options.echo) {}

void BodyRenderer::token(const streams::TokenView& token, const streams::EventId&, std::string&) {
  text_ += token.t;
  if (options_.logprobs) logprobs_.add(token);
}

void BodyRenderer::end(const wire::EndEvent& event, const streams::EventId&, std::string& out) {
  const bool chat = options_.endpoint == Endpoint::kChat;
  out += opening_;
  out +=
      chat ? R"(,"choices":[{"index":0,"message":{"role":"assistant","content":)" : R"(,"choices":[{"index":0,"text":)";
  base::append_json_string(out, text_);
  out += chat ? R"(,"refusal":null},"logprobs":)" : R"(,"logprobs":)";
  logprobs_.write(out);
  out.append(R"(,"finish_reason":")").append(finish_reason(event.stop_reason)).append(R"("}],"usage":)");
  append_usage(out, event);
  append_provenance(out, event);
  out += '}';
  head_ = {.status = 200, .headers = with_request_id({{"Content-Type", "application/json"}}, correlation_id_)};
}

void BodyRenderer::error(const wire::ErrorBody& error, const std::optional<streams::EventId>&, std::string& out) {
  net::http::Response response = error_response(wire::to_error(error), correlation_id_);
  out += response.body;
  head_ = {.status = response.status, .headers = std::move(response.headers)};
}

}  // namespace llorch::orchestratord::http::openai
