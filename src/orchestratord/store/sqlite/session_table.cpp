#include "orchestratord/store/sqlite/session_table.h"

#include "orchestratord/store/rows/job_row.h"
#include "orchestratord/store/rows/session_row.h"

namespace llorch::orchestratord::store::sqlite {

base::Result<> upsert_session(Database& database, const core::sessions::SessionRecord& session) {
  Statement* upsert = TRY(database.statement(
      "INSERT INTO sessions (session_key, session_id, created_at, touched_at, token_budget, time_budget_ms, "
      "cost_budget_nano, prompt_token_cost_nano, output_token_cost_nano) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
      "ON CONFLICT (session_key) DO UPDATE SET touched_at = max(touched_at, excluded.touched_at)"));
  upsert->bind(1, session.key).bind(2, std::string_view(session.session_id.value)).bind(3, session.created_unix_ms);
  upsert->bind(4, session.touched_unix_ms).bind(5, session.token_budget).bind(6, session.time_budget_ms);
  upsert->bind(7, session.cost_budget_nano).bind(8, session.prompt_token_cost_nano);
  upsert->bind(9, session.output_token_cost_nano);
  return upsert->run();
}

base::Result<> delete_session(Database& database, std::int64_t session_key) {
  Statement* remove = TRY(database.statement("DELETE FROM sessions WHERE session_key = ?"));
  remove->bind(1, session_key);
  return remove->run();
}

base::Result<std::vector<core::sessions::RestoredSession>> all_sessions(Database& database) {
  const StatementUse row(*TRY(database.statement(
      "SELECT s.session_key, s.session_id, s.created_at, s.touched_at, s.token_budget, s.time_budget_ms, "
      "s.cost_budget_nano, s.prompt_token_cost_nano, s.output_token_cost_nano, s.turns + count(j.job_id), "
      "s.tokens_in + coalesce(sum(" LLORCH_COUNT(
          "j.tokens_in") ") FILTER (WHERE j.completed_at IS NOT NULL AND j.attempts > 0), 0), "
                         "s.tokens_out + coalesce(sum(" LLORCH_COUNT(
                             "j.tokens_generated") ") FILTER (WHERE j.completed_at IS NOT NULL), 0), "
                                                   "s.decode_time_ms + coalesce(sum(" LLORCH_COUNT(
                                                       "j.decode_time_ms") ") FILTER (WHERE j.completed_at IS NOT "
                                                                           "NULL), 0), "
                                                                           "coalesce(max(j.created_at), 0), "
                                                                           "coalesce(max(j.completed_at), 0) "
                                                                           "FROM sessions s LEFT JOIN jobs j ON "
                                                                           "j.session_key = s.session_key "
                                                                           "GROUP BY s.session_key ORDER BY "
                                                                           "s.created_at, s.session_key")));
  std::vector<core::sessions::RestoredSession> sessions;
  while (TRY(row->step())) sessions.push_back(read_session(*row));
  return sessions;
}

}  // namespace llorch::orchestratord::store::sqlite
