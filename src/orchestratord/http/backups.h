#pragma once
// POST /v2/store/backup: a copy of the job store while it serves. The request names no file: `llorch backup` leaves the
// name in the state directory, which only the owner of the store can write.
#include "orchestratord/http/context.h"

namespace llorch::orchestratord::http {

// Thread-safe. REQUIRES: `context` outlives it.
class Backups {
 public:
  explicit Backups(const Context& context) : context_(context) {}

  // Answers with events: `progress` now and then, at last `done` or `error`. The parts of the copy are whole with `done`
  // and gone with `error`, or when the caller goes away.
  void make(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  void begin(const net::ExchangePtr& exchange, const base::CorrelationId& correlation_id);

  const Context& context_;
};

}  // namespace llorch::orchestratord::http
