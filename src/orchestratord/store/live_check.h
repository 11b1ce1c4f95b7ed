#pragma once
// What a start asks of the live jobs that it finds before it migrates their store: an older program refuses the store behind that.
#include <functional>
#include <optional>
#include <string>

#include "base/id.h"
#include "base/result.h"

namespace llorch::orchestratord::store {

// A live job, as a store of any schema has it.
struct FoundLiveJob {
  base::JobId job_id;
  std::string params;                  // see JobRecord
  std::optional<std::string> payload;  // absent: not spooled, or its key is lost
};
// What it refuses the start refuses.
using CheckLiveJob = std::function<base::Result<>(const FoundLiveJob& job)>;

}  // namespace llorch::orchestratord::store
