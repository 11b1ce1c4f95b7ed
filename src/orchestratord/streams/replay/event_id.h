#pragma once
// Event ids of a job's stream. On the wire "<seq>-<h>": h proves which tokens came before.
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llorch::orchestratord::streams {

// queued 0, started 1, token i is 2 + i, the terminal event 2 + the number of tokens.
inline constexpr std::int64_t kQueuedSeq = 0;
inline constexpr std::int64_t kStartedSeq = 1;
inline constexpr std::int64_t kFirstTokenSeq = 2;

struct EventId {
  std::int64_t seq = 0;
  std::uint64_t prefix = 0;  // first 8 bytes, big-endian, of the running SHA-256 after this event
  bool operator==(const EventId&) const = default;
};

std::string to_string(const EventId& id);
void append_event_id(std::string& out, const EventId& id);
// A Last-Event-ID header. Errors: INVALID_PARAMS. At most 18 digits of seq.
base::Result<EventId> parse_event_id(std::string_view text);

}  // namespace llorch::orchestratord::streams
