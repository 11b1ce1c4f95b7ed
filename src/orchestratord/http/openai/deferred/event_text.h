#pragma once
// The events of a response as text: cut behind one that a client has, and the response of the last one. Pure.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "orchestratord/streams/renderer.h"

namespace llorch::orchestratord::http::openai {

// Appends the events of `text` whose sequence_number is above `after`; absent: all. Comments go if `comments` is false.
// REQUIRES: `text` holds whole events as ResponseRenderer writes them.
struct EventFilter {
  std::optional<std::int64_t> after{};
  bool comments = true;
};
void append_events(std::string_view text, const EventFilter& filter, std::string& out);

// The member `response` of the last event. Errors: CORRUPT_FILE.
base::Result<std::string> last_response(std::string_view text);

// What `inner` writes, from the event behind `after` on, and nothing of errors that are this reader's alone. REQUIRES: `inner` streams.
class ResumedRenderer final : public streams::Renderer {
 public:
  ResumedRenderer(std::shared_ptr<streams::Renderer> inner, std::optional<std::int64_t> after)
      : inner_(std::move(inner)), filter_{.after = after} {}

  bool streams() const override { return true; }
  Head head() const override { return inner_->head(); }
  void queued(const wire::QueuedEvent& event, const streams::EventId& id, std::string& out) override;
  void started(const wire::StartedEvent& event, const streams::EventId& id, std::string& out) override;
  void token(const streams::TokenView& token, const streams::EventId& id, std::string& out) override;
  void metrics(const wire::MetricsEvent&, std::string&) override {}
  void end(const wire::EndEvent& event, const streams::EventId& id, std::string& out) override;
  bool more(std::string& out) override;
  std::size_t bytes_held() const override { return inner_->bytes_held() + events_.capacity(); }
  void error(const wire::ErrorBody& error, const std::optional<streams::EventId>& id, std::string& out) override;
  void keep_alive(std::string& out) override { inner_->keep_alive(out); }

 private:
  void pass(std::string& out);

  const std::shared_ptr<streams::Renderer> inner_;
  const EventFilter filter_;
  std::string events_;  // of one call
};

}  // namespace llorch::orchestratord::http::openai
