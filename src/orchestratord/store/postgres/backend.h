#pragma once
// The rows of the store in PostgreSQL.
#include <memory>

#include "orchestratord/store/backend.h"
#include "orchestratord/store/postgres/server.h"

namespace llorch::orchestratord::store::postgres {

// Connects at once, and again after every error, when something is asked of it. Errors: those of Server::connect.
base::Result<std::unique_ptr<Backend>> open_backend(ServerOptions options);

}  // namespace llorch::orchestratord::store::postgres
