#pragma once
// The rows of the store in SQLite.
#include <memory>

#include "orchestratord/store/backend.h"
#include "orchestratord/store/sqlite/database.h"

namespace llorch::orchestratord::store::sqlite {

// REQUIRES: `database` is migrated.
std::unique_ptr<Backend> make_backend(Database database);

}  // namespace llorch::orchestratord::store::sqlite
