#include "orchestratord/http/chat/answer.h"

#include <fmt/format.h>

#include "base/sha256.h"
#include "net/sse/sse.h"

namespace llorch::orchestratord::http::chat {

void append_wait(std::string& out, const wire::QueuedEvent& wait) {
  net::sse::append_comment(out,
                           fmt::format("queued: {} before this one when it came, its start was expected {} ms later",
                                       wait.queue_position, wait.predicted_start_ms));
}

void append_keep_alive(std::string& out, const std::optional<wire::QueuedEvent>& wait) {
  if (wait) return append_wait(out, *wait);
  net::sse::append_comment(out, "keep-alive");
}

std::string call_id(std::string_view prefix, const base::JobId& job_id, const Part& call) {
  constexpr std::size_t kHexDigits = 24;
  const std::string hex = base::to_hex(base::sha256(fmt::format("{}\n{}", job_id.value, call.index)));
  return std::string(prefix) + hex.substr(0, kHexDigits);
}

}  // namespace llorch::orchestratord::http::chat
