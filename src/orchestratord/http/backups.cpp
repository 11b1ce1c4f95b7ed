#include "orchestratord/http/backups.h"

#include <fmt/core.h>

#include <utility>

#include "net/sse/sse.h"
#include "orchestratord/store/backup/backup.h"
#include "wire/json.h"
#include "wire/task.h"

namespace llorch::orchestratord::http {
namespace {

namespace backup = store::backup;

constexpr std::int64_t kProgressEveryMs = 200;

bool tell(const net::ExchangePtr& exchange, std::string_view event, const std::string& data) {
  std::string bytes;
  net::sse::append_event(bytes, {.event = event, .id = {}, .data = data});
  return exchange->write(bytes);
}

// Parts that nobody has heard are whole go. What is told is already so: who hears of a failure may begin anew at once, and
// with the same names.
void finish(const net::ExchangePtr& exchange, const base::CorrelationId& correlation_id, const backup::Parts& parts,
            const base::Result<std::string>& keys) {
  const base::Result<> written = keys ? backup::fill(parts.keys, *keys) : base::fail(keys.error());
  if (written && tell(exchange, "done", "{}")) return;
  backup::remove(parts);
  if (!written) tell(exchange, "error", wire::encode(wire::error_body(written.error(), correlation_id)));
}

}  // namespace

void Backups::make(const net::Request& request, const net::ExchangePtr& exchange) {
  context_.request_executor->post(
      [this, exchange, correlation_id = request.correlation_id] { begin(exchange, correlation_id); });
}

void Backups::begin(const net::ExchangePtr& exchange, const base::CorrelationId& correlation_id) {
  const auto file = backup::take_request(context_.state_directory);
  if (!file) return refuse(context_, exchange, file.error());
  exchange->start_stream(200, net::http::sse_headers());
  const backup::Parts parts = backup::parts_of(*file);
  context_.store->backup(
      {.database_file = parts.database.string(),
       .progress =
           [exchange, clock = context_.clock, told_ms = std::int64_t{0}](store::BackupProgress progress) mutable {
             const std::int64_t now_ms = clock->now().mono_ms;
             if (now_ms - told_ms < kProgressEveryMs) return !exchange->closed();
             told_ms = now_ms;
             return tell(
                 exchange, "progress",
                 fmt::format("{{\"pages_done\":{},\"pages_total\":{}}}", progress.pages_done, progress.pages_total));
           },
       .done =
           [executor = context_.request_executor, exchange, correlation_id, parts](base::Result<std::string> keys) {
             executor->post([exchange, correlation_id, parts, keys = std::move(keys)] {
               finish(exchange, correlation_id, parts, keys);
               exchange->end();
             });
           }});
}

}  // namespace llorch::orchestratord::http
