#pragma once
// One row of the table sessions with what its jobs have used, whichever database it comes from.
#include <algorithm>

#include "orchestratord/core/sessions/session.h"

namespace llorch::orchestratord::store {

// Columns: session_key, session_id, created_at, touched_at, the three budgets, the two prices; then of its jobs the count,
// tokens in and out, decode time, the last created_at and completed_at, 0 for none.
template <class Row>
core::sessions::RestoredSession read_session(const Row& row) {
  core::sessions::RestoredSession out;
  out.session = {.key = row.integer(0),
                 .session_id = base::SessionId(row.text(1)),
                 .created_unix_ms = row.integer(2),
                 .touched_unix_ms = row.integer(3),
                 .token_budget = row.optional_integer(4),
                 .time_budget_ms = row.optional_integer(5),
                 .cost_budget_nano = row.optional_integer(6),
                 .prompt_token_cost_nano = row.integer(7),
                 .output_token_cost_nano = row.integer(8)};
  out.use = {.turns = row.integer(9),
             .tokens_in = row.integer(10),
             .tokens_out = row.integer(11),
             .decode_time_ms = row.integer(12)};
  out.last_activity_unix_ms =
      std::max({out.session.touched_unix_ms, out.session.created_unix_ms, row.integer(13), row.integer(14)});
  return out;
}

}  // namespace llorch::orchestratord::store
