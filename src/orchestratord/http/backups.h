#pragma once
// POST /v2/store/backup: a copy of the job store while it serves. Where it goes is not the caller's to say: `llorch backup`
// leaves the name of its file in the state folder, which only the owner of the store can write.
#include "orchestratord/api/context.h"

namespace llorch::orchestratord::api {

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

}  // namespace llorch::orchestratord::api
