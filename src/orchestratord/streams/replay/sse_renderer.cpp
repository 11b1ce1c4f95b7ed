#include "orchestratord/streams/replay/sse_renderer.h"

#include "net/sse/sse.h"
#include "wire/json.h"

namespace llorch::orchestratord::streams {
namespace {

template <class Event>
void append(std::string& out, std::string_view name, const std::optional<EventId>& id, const Event& event) {
  net::sse::append_event(out, {.event = name, .id = id ? to_string(*id) : std::string(), .data = wire::encode(event)});
}

}  // namespace

void SseRenderer::queued(const wire::QueuedEvent& event, const EventId& id, std::string& out) {
  append(out, "queued", id, event);
}

void SseRenderer::started(const wire::StartedEvent& event, const EventId& id, std::string& out) {
  append(out, "started", id, event);
}

// What append() would do, straight into `out`. A token's JSON is one line.
void SseRenderer::token(const TokenView& token, const EventId& id, std::string& out) {
  out += "event: token\nid: ";
  append_event_id(out, id);
  out += "\ndata: ";
  append_token_json(out, token);
  out += "\n\n";
}

void SseRenderer::metrics(const wire::MetricsEvent& event, std::string& out) {
  append(out, "metrics", std::nullopt, event);
}

void SseRenderer::end(const wire::EndEvent& event, const EventId& id, std::string& out) {
  append(out, "end", id, event);
}

void SseRenderer::error(const wire::ErrorBody& error, const std::optional<EventId>& id, std::string& out) {
  append(out, "error", id, error);
}

void SseRenderer::keep_alive(std::string& out) { net::sse::append_comment(out, "keep-alive"); }

}  // namespace llorch::orchestratord::streams
