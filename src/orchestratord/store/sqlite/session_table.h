#pragma once
// The SQL of sessions. Every function runs inside the caller's transaction.
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "orchestratord/sessions/session.h"
#include "orchestratord/state_store/sqlite/database.h"

namespace llorch::orchestratord::state_store::sqlite {

// Inserts it, or moves its touched_at; the rest of a row never changes.
base::Result<> upsert_session(Database& database, const sessions::SessionRecord& session);
base::Result<> delete_session(Database& database, std::int64_t session_key);
// With what their jobs have used; in order of creation.
base::Result<std::vector<sessions::RestoredSession>> all_sessions(Database& database);

}  // namespace llorch::orchestratord::state_store::sqlite
