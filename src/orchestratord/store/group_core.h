#pragma once
// The StoreCore over any database: one transaction per group, sealed payloads whose keys end with their jobs, admissions
// in doubt, retention.
#include <memory>

#include "base/clock.h"
#include "base/entropy.h"
#include "orchestratord/store/backend.h"
#include "orchestratord/store/files/state_file.h"
#include "orchestratord/store/store_core.h"

namespace llorch::orchestratord::store {

// Finished jobs past a limit leave in slices: so many by themselves, so many with the commit of a group, which waits for them.
inline constexpr std::int64_t kRetentionSliceJobs = 200;
inline constexpr std::int64_t kRemovedPerCommitJobs = 64;
// A list is read in slices of this many jobs, one behind each group.
inline constexpr std::int64_t kListSliceJobs = 64;
// So many jobs are looked up by their id behind each group, and as many by their task's.
inline constexpr std::size_t kFindsPerGroup = 64;

struct GroupCoreOptions {
  std::unique_ptr<Backend> backend;
  files::StateFilePtr keys;
  RetentionLimits retention;
  const base::Clock* clock = nullptr;  // REQUIRES not null; outlives the core
  base::Entropy* entropy = nullptr;    // REQUIRES not null; outlives the core
};

// Overwrites keys no live job owns, removes the first jobs past their retention. Errors: those of the parts.
base::Result<std::unique_ptr<StoreCore>> open_group_core(GroupCoreOptions options);

}  // namespace llorch::orchestratord::store
