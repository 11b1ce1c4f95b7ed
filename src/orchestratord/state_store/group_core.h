#pragma once
// The StoreCore over any database: one transaction per group, sealed payloads whose keys end with their jobs, admissions
// in doubt, retention.
#include <memory>

#include "base/clock.h"
#include "base/entropy.h"
#include "orchestratord/state_store/backend.h"
#include "orchestratord/state_store/files/state_file.h"
#include "orchestratord/state_store/store_core.h"

namespace llorch::orchestratord::state_store {

// Finished jobs past their retention leave in slices of this many, one behind each group.
inline constexpr std::int64_t kRetentionSliceJobs = 200;

struct GroupCoreOptions {
  std::unique_ptr<Backend> backend;
  files::StateFilePtr keys;
  std::int64_t retention_ms = 0;       // of finished jobs
  const base::Clock* clock = nullptr;  // REQUIRES not null; outlives the core
  base::Entropy* entropy = nullptr;    // REQUIRES not null; outlives the core
};

// Overwrites keys no live job owns, removes the first jobs past their retention. Errors: those of the parts.
base::Result<std::unique_ptr<StoreCore>> open_group_core(GroupCoreOptions options);

}  // namespace llorch::orchestratord::state_store
