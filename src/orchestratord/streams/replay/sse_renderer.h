#pragma once
// A stream as /v2 sends it: server-sent events with the events' ids.
#include "orchestratord/streams/renderer.h"

namespace llorch::orchestratord::streams {

class SseRenderer : public Renderer {
 public:
  bool streams() const override { return true; }
  Head head() const override { return {.status = 200, .headers = net::http::sse_headers()}; }
  bool stateless() const override { return true; }

  void queued(const wire::QueuedEvent& event, const EventId& id, std::string& out) override;
  void started(const wire::StartedEvent& event, const EventId& id, std::string& out) override;
  void token(const TokenView& token, const EventId& id, std::string& out) override;
  void metrics(const wire::MetricsEvent& event, std::string& out) override;
  void end(const wire::EndEvent& event, const EventId& id, std::string& out) override;
  void error(const wire::ErrorBody& error, const std::optional<EventId>& id, std::string& out) override;
  void keep_alive(std::string& out) override;
};

}  // namespace llorch::orchestratord::streams
