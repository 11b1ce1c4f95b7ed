#pragma once
// One request and its response, over libcurl. Follows no redirect and retries nothing.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "pool_managerd/provisioner/stop_flag.h"
#include "pool_managerd/provisioner/web/egress.h"
#include "pool_managerd/provisioner/web/rate_limit.h"

typedef void CURL;

namespace llorch::pool_managerd::provisioner::web {

struct WebOptions {
  EgressPolicy egress;
  std::string proxy;    // empty: none, whatever the environment says
  std::string ca_file;  // empty: the system's
  std::int64_t bytes_per_second_max = 0;
  std::int64_t stall_timeout_ms = 30'000;
  int attempts_max = 6;
  int redirects_max = 8;
};

struct ByteRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;  // exclusive
};

struct WebRequest {
  std::string url;
  std::vector<std::string> headers;  // "Name: value", also for those that a redirect leads to
  std::string authorization;         // "Bearer ..."; goes to the origin of `url` alone. Empty: none
  std::optional<ByteRange> range;
};

struct ReplyHead {
  int status = 0;
  std::map<std::string, std::string, std::less<>> headers;  // names in lower case

  std::string_view header(std::string_view name) const {
    const auto it = headers.find(name);
    return it == headers.end() ? std::string_view() : std::string_view(it->second);
  }
  std::optional<std::int64_t> content_length;
};

// Used by one thread. REQUIRES: `options`, `limit` and `stop` outlive it.
class Transfer {
 public:
  // Is given the body as it comes; false: enough, the rest is not read.
  using Sink = std::function<bool(const ReplyHead& head, std::string_view bytes)>;

  // Errors: those of address_of() and check_egress().
  static base::Result<std::unique_ptr<Transfer>> make(const WebOptions& options, RateLimit& limit, const StopFlag& stop,
                                                      const WebRequest& request, Sink sink);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer();

  CURL* easy() const { return easy_; }
  // Runs it here, without curl_multi.
  base::Result<> perform();
  // What became of it: `code` is curl's CURLcode. Success: a response, complete or cut short by the sink. Errors: FORBIDDEN (a
  // private address), UNREACHABLE, TIMEOUT, IO_ERROR, CANCELLED. Logs the request once.
  base::Result<> outcome(int code);
  // Valid once perform() or outcome() has returned.
  const ReplyHead& head() const { return head_; }
  // Where a redirect leads, absolute; empty: none.
  std::string redirect_url() const;
  bool cut_short() const { return cut_short_; }

 private:
  Transfer(const WebOptions& options, RateLimit& limit, const StopFlag& stop, Address address, Sink sink);
  void configure(const WebRequest& request);
  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self);
  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self);
  static int on_progress(void* self, std::int64_t, std::int64_t, std::int64_t, std::int64_t);
  static int open_socket(void* self, int purpose, void* address);

  const WebOptions& options_;
  RateLimit& limit_;
  const StopFlag& stop_;
  const Address address_;
  const Sink sink_;
  CURL* easy_ = nullptr;
  void* header_list_ = nullptr;
  ReplyHead head_;
  std::string logged_path_;
  std::int64_t bytes_ = 0;
  bool cut_short_ = false;
  bool private_address_ = false;
};

}  // namespace llorch::pool_managerd::provisioner::web
