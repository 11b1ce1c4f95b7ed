#include "pool_managerd/provisioner/web/web.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/error_detail.h"

namespace llorch::pool_managerd::provisioner::web {
namespace {

using base::ErrorCode;

constexpr std::int64_t kRetryAfterMaxMs = 60'000;
constexpr std::int64_t kFirstDelayMs = 500;

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

bool may_pass(const base::Error& error) {
  if (error.code == ErrorCode::kTimeout || error.code == ErrorCode::kIoError) return true;
  if (error.code != ErrorCode::kUnreachable) return false;
  return !base::has_detail(error, "reason", "tls");
}

base::Error status_error(const ReplyHead& head, const std::string& url) {
  const std::string where = without_query(url);
  const auto error = [&](ErrorCode code, std::string message) {
    return base::Error{code, std::move(message), {}}.with("status", std::int64_t{head.status});
  };
  switch (head.status) {
    case 401:
    case 403:
      return error(
          ErrorCode::kForbidden,
          fmt::format("{} refuses (HTTP {}): it needs a token that may read this model; models.pull.hub_token_file "
                      "and models.pull.s3_key_file hold them, and a gated model's terms are accepted at its page",
                      where, head.status));
    case 404:
    case 410: return error(ErrorCode::kModelNotFound, fmt::format("{} does not exist (HTTP {})", where, head.status));
    case 408:
    case 429: return error(ErrorCode::kUnreachable, fmt::format("{} is asked too often (HTTP {})", where, head.status));
    default: break;
  }
  return error(head.status >= 500 ? ErrorCode::kUnreachable : ErrorCode::kModelNotFound,
               fmt::format("{} answers with HTTP {}", where, head.status));
}

std::chrono::milliseconds retry_delay(int attempt, const ReplyHead& head) {
  const std::string_view text = head.header("retry-after");
  std::int64_t seconds = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), seconds).ec == std::errc() && seconds >= 0) {
    return std::chrono::milliseconds(std::min(seconds, kRetryAfterMaxMs / 1000) * 1000);
  }
  return std::chrono::milliseconds(std::min(kFirstDelayMs << std::min(attempt, 16), kRetryAfterMaxMs));
}

base::Result<std::unique_ptr<Transfer>> Web::transfer(const WebRequest& request, const StopFlag& stop,
                                                      Transfer::Sink sink) {
  return Transfer::make(options_, limit_, stop, request, std::move(sink));
}

base::Result<WebReply> Web::get_once(const WebRequest& first, std::size_t body_bytes_max, const StopFlag& stop) {
  const std::string origin = TRY(address_of(first.url)).origin;
  WebRequest request = first;
  for (int hops = 0; hops <= options_.redirects_max; ++hops) {
    WebReply reply{.head = {}, .url = request.url, .body = {}};
    const auto transfer =
        TRY(Transfer::make(options_, limit_, stop, request, [&](const ReplyHead&, std::string_view part) {
          const std::size_t room = body_bytes_max - reply.body.size();
          reply.body += part.substr(0, room);
          reply.is_whole = part.size() <= room;
          return reply.is_whole;
        }));
    TRY(transfer->perform());
    reply.head = transfer->head();
    if (!is_redirect(reply.head.status)) return reply;
    request.url = transfer->redirect_url();
    if (request.url.empty()) return base::fail(ErrorCode::kIoError, "a redirect leads nowhere");
    if (TRY(address_of(request.url)).origin != origin) request.authorization.clear();
  }
  return base::fail(base::Error{
      ErrorCode::kModelNotFound,
      fmt::format("{} leads from redirect to redirect", without_query(first.url)),
      {}}.with("reason", std::string("redirects")));
}

base::Result<WebReply> Web::get(WebRequest request, std::size_t body_bytes_max, const StopFlag& stop) {
  for (int attempt = 1;; ++attempt) {
    auto reply = get_once(request, body_bytes_max, stop);
    if (reply && reply->head.status < 400) return reply;
    base::Error error = reply ? status_error(reply->head, reply->url) : reply.error();
    if (!may_pass(error) || attempt >= options_.attempts_max) return base::fail(std::move(error));
    if (stop.wait(retry_delay(attempt, reply ? reply->head : ReplyHead{}))) {
      return base::fail(ErrorCode::kCancelled, "the pull was cancelled");
    }
  }
}

base::Result<WebReply> Web::get_whole(WebRequest request, std::size_t body_bytes_max, const StopFlag& stop) {
  const std::string url = request.url;
  auto reply = TRY(get(std::move(request), body_bytes_max, stop));
  if (reply.is_whole) return reply;
  return base::fail(ErrorCode::kPayloadTooLarge,
                    fmt::format("{} sends more than {} bytes", without_query(url), body_bytes_max));
}

}  // namespace llorch::pool_managerd::provisioner::web
