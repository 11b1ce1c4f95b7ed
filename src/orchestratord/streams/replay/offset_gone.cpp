#include "orchestratord/streams/replay/offset_gone.h"

#include <utility>

namespace llorch::orchestratord::streams {

base::Error offset_gone(std::string last_event_id, std::optional<std::uint64_t> seed) {
  base::Error error = base::Error{
      base::ErrorCode::kStreamOffsetGone,
      "the job has ended and its tokens are not held any more: they are kept in memory only, for "
      "stream.retain_ms, for stream.reconnect_grace_ms once a client was sent them all, or for less where "
      "memory is short. A stream without Last-Event-ID has the terminal event; for the output, submit the "
      "job again with its seed",
      {}}.with("last_event_id", std::move(last_event_id));
  if (!seed) return error;
  return std::move(error).with("seed", std::to_string(*seed));
}

}  // namespace llorch::orchestratord::streams
