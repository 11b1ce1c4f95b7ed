#pragma once
// The rows of the store in SQLite.
#include <memory>

#include "orchestratord/state_store/backend.h"
#include "orchestratord/state_store/sqlite/database.h"

namespace llorch::orchestratord::state_store::sqlite {

// REQUIRES: `database` is migrated.
std::unique_ptr<Backend> make_backend(Database database);

}  // namespace llorch::orchestratord::state_store::sqlite
