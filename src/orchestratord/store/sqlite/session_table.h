#pragma once
// The SQL of sessions. Every function runs inside the caller's transaction.
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "orchestratord/core/sessions/session.h"
#include "orchestratord/store/sqlite/database.h"

namespace llorch::orchestratord::store::sqlite {

// Inserts it, or moves its touched_at; the rest of a row never changes.
base::Result<> upsert_session(Database& database, const core::sessions::SessionRecord& session);
base::Result<> delete_session(Database& database, std::int64_t session_key);
// With what their jobs have used; in order of creation.
base::Result<std::vector<core::sessions::RestoredSession>> all_sessions(Database& database);

}  // namespace llorch::orchestratord::store::sqlite
