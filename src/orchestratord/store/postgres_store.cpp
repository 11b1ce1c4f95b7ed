#include "orchestratord/store/postgres_store.h"

#include "base/assert.h"
#include "base/log.h"
#include "orchestratord/store/group_core.h"
#include "orchestratord/store/postgres/backend.h"
#include "orchestratord/store/store_thread.h"

namespace llorch::orchestratord::store {

base::Result<std::unique_ptr<Store>> open_postgres_store(PostgresStoreOptions options) {
  ASSERT(options.clock != nullptr && options.entropy != nullptr);
  GroupCoreOptions core;
  core.backend = TRY(postgres::open_backend(
      {.connection = {.conninfo = std::move(options.conninfo), .reply_timeout = options.reply_timeout},
       .lock_wait = options.lock_wait,
       .clock = options.clock,
       .on_taken_over = std::move(options.on_taken_over)}));
  base::log_event(base::LogLevel::kInfo, "store.library", {}, "The jobs are in PostgreSQL.");
  core.keys = TRY(files::open_state_file(options.directory / "payload.keys"));
  core.retention = options.retention;
  core.clock = options.clock;
  core.entropy = options.entropy;
  return start_store_thread(TRY(open_group_core(std::move(core))), *options.clock);
}

}  // namespace llorch::orchestratord::store
