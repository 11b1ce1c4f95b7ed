#pragma once
// Server-sent events (WHATWG HTML, "Server-sent events"): bytes <-> events. No sockets. One object, one thread.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::net::sse {

struct Event {
  std::string event;              // "message" if the stream names none
  std::optional<std::string> id;  // only if this event carried an id field
  std::string data;               // lines joined by LF
  bool operator==(const Event&) const = default;
};

struct EventView {
  std::string_view event;  // REQUIRES no CR, LF; empty = no event field
  std::string_view id;     // REQUIRES no CR, LF, NUL; empty = no id field
  std::string_view data;   // one line of JSON; line breaks become several data fields
};
// Appends one event as it goes on the wire. No allocation if `out` has room.
void append_event(std::string& out, const EventView& event);
// Appends ": text\n\n"; parsers skip it. REQUIRES no CR, LF.
void append_comment(std::string& out, std::string_view text);

struct DecoderLimits {
  std::size_t line_bytes_max = 1 << 20;
  std::size_t event_bytes_max = 4 << 20;  // all data lines of one event
};

// Incremental decoder: the events do not depend on how the bytes are cut. An event that the stream's end leaves open
// is dropped, as the standard says.
class Decoder {
 public:
  explicit Decoder(DecoderLimits limits = {}) : limits_(limits) {}

  // An event while it lasts: until on_event returns.
  struct Decoded {
    std::string_view event;  // "message" if the stream names none
    std::optional<std::string_view> id;
    std::string_view data;
  };
  using OnEvent = std::function<void(const Decoded&)>;
  // Hands over the events that `bytes` completes; allocates nothing once it has seen events of their size. Errors:
  // PAYLOAD_TOO_LARGE past a limit; the decoder then stays failed.
  base::Result<> feed(std::string_view bytes, const OnEvent& on_event);
  // The same, appending them.
  base::Result<> feed(std::string_view bytes, std::vector<Event>& out);

  // The last id seen, what a client sends as Last-Event-ID.
  const std::string& last_event_id() const { return last_event_id_; }
  // The last `retry:` field.
  std::optional<std::int64_t> retry_ms() const { return retry_ms_; }

 private:
  base::Result<> take_line(std::string_view line, const OnEvent& on_event);
  base::Result<> take_field(std::string_view name, std::string_view value);
  void dispatch(const OnEvent& on_event);

  DecoderLimits limits_;
  std::string partial_line_;
  bool after_cr_ = false;
  bool at_start_ = true;  // a byte order mark may still come
  bool failed_ = false;
  bool has_data_ = false;
  bool has_id_ = false;
  std::string event_, id_, data_;  // of the next event
  std::string last_event_id_;
  std::optional<std::int64_t> retry_ms_;
};

}  // namespace llorch::net::sse
