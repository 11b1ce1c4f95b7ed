#pragma once
// HTTP and HTTPS to servers outside: redirects, retries, bounds. Nothing else of the tree asks anybody beyond the cluster.
#include <chrono>

#include "pool_managerd/provisioner/web/transfer.h"

namespace llorch::pool_managerd::provisioner::web {

struct WebReply {
  ReplyHead head;
  std::string url;   // that answered, after redirects
  std::string body;  // at most as long as asked for
  bool is_whole = true;
};

// A failure that may pass: no connection, silence, 408, 429 or 5xx.
bool may_pass(const base::Error& error);
// The error for a status of 400 and more, with details.status; 404 is MODEL_NOT_FOUND, 401 and 403 say what to do about tokens.
base::Error status_error(const ReplyHead& head, const std::string& url);
// Before attempt number `attempt` (from 1): what Retry-After says, at most a minute, or twice as long as before.
std::chrono::milliseconds retry_delay(int attempt, const ReplyHead& head);

// Thread-safe.
class Web {
 public:
  explicit Web(WebOptions options) : options_(std::move(options)), limit_(options_.bytes_per_second_max) {}

  // The head and up to `body_bytes_max` bytes of what `request` leads to. Follows up to `redirects_max` redirects; `authorization` goes to
  // the first origin alone. Tries again where may_pass(). Errors: those of Transfer; IO_ERROR (redirects without end);
  // status_error().
  base::Result<WebReply> get(WebRequest request, std::size_t body_bytes_max, const StopFlag& stop);
  // The whole body. Errors: also PAYLOAD_TOO_LARGE.
  base::Result<WebReply> get_whole(WebRequest request, std::size_t body_bytes_max, const StopFlag& stop);
  // Any status is a reply: for servers that say in a 401 where tokens are.
  base::Result<WebReply> get_once(const WebRequest& request, std::size_t body_bytes_max, const StopFlag& stop);
  base::Result<std::unique_ptr<Transfer>> transfer(const WebRequest& request, const StopFlag& stop,
                                                   Transfer::Sink sink);

  const WebOptions& options() const { return options_; }

 private:
  const WebOptions options_;
  RateLimit limit_;
};

}  // namespace llorch::pool_managerd::provisioner::web
