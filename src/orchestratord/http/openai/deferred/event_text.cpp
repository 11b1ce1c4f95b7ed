#include "orchestratord/http/openai/deferred/event_text.h"

#include <charconv>

namespace llorch::orchestratord::http::openai {
namespace {

constexpr std::string_view kEnd = "\n\n";
constexpr std::string_view kNumber = R"("sequence_number":)";
constexpr std::string_view kResponse = R"(,"response":)";

std::int64_t number_of(std::string_view event) {
  std::int64_t number = -1;
  const std::size_t at = event.find(kNumber);
  if (at != std::string_view::npos)
    std::from_chars(event.data() + at + kNumber.size(), event.data() + event.size(), number);
  return number;
}

}  // namespace

void append_events(std::string_view text, const EventFilter& filter, std::string& out) {
  while (!text.empty()) {
    const std::size_t end = text.find(kEnd);
    const std::string_view event = text.substr(0, end == std::string_view::npos ? text.size() : end + kEnd.size());
    text.remove_prefix(event.size());
    const bool wanted = event.starts_with(':') ? filter.comments : !filter.after || number_of(event) > *filter.after;
    if (wanted) out += event;
  }
}

base::Result<std::string> last_response(std::string_view text) {
  const auto corrupt = [] {
    return base::fail(base::ErrorCode::kCorruptFile, "the kept response has no end; delete it and ask again");
  };
  if (!text.ends_with("}\n\n")) return corrupt();
  text.remove_suffix(kEnd.size());
  const std::size_t begin = text.rfind(kEnd);
  if (begin != std::string_view::npos) text.remove_prefix(begin + kEnd.size());
  const std::size_t at = text.find(kResponse);
  if (at == std::string_view::npos) return corrupt();
  text.remove_prefix(at + kResponse.size());
  text.remove_suffix(1);  // of the event
  return std::string(text);
}

void ResumedRenderer::pass(std::string& out) {
  append_events(events_, filter_, out);
  events_.clear();
}

void ResumedRenderer::queued(const wire::QueuedEvent& event, const streams::EventId& id, std::string& out) {
  inner_->queued(event, id, events_);
  pass(out);
}

void ResumedRenderer::started(const wire::StartedEvent& event, const streams::EventId& id, std::string& out) {
  inner_->started(event, id, events_);
  pass(out);
}

void ResumedRenderer::token(const streams::TokenView& token, const streams::EventId& id, std::string& out) {
  inner_->token(token, id, events_);
  pass(out);
}

void ResumedRenderer::end(const wire::EndEvent& event, const streams::EventId& id, std::string& out) {
  inner_->end(event, id, events_);
  pass(out);
}

bool ResumedRenderer::more(std::string& out) {
  if (!inner_->more(events_)) return false;
  pass(out);
  std::string().swap(events_);  // an event of these may be as long as the output
  return true;
}

// One of this reader is no event of the response, which goes on: response.failed would say that it does not.
void ResumedRenderer::error(const wire::ErrorBody& error, const std::optional<streams::EventId>& id, std::string& out) {
  if (!id) return;
  inner_->error(error, id, events_);
  pass(out);
}

}  // namespace llorch::orchestratord::http::openai
