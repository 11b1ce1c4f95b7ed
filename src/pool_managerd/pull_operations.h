#pragma once
// The routes of models: pulls, what peers get, what is staged.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/file_reads.h"
#include "engine/inference/repack_cache/repack_cache.h"
#include "pool_managerd/control_api/routes.h"
#include "pool_managerd/model_catalog/model_catalog.h"
#include "pool_managerd/peer_files.h"
#include "pool_managerd/provisioner/provisioner.h"
#include "pool_managerd/staging/staging.h"

namespace llorch::pool_managerd {

// Models of the cache that are being removed, by what their references begin with. On the main thread.
using Removals = std::map<std::string, std::weak_ptr<const void>>;
// Why nothing begins with the files of this model now; absent: it may.
std::optional<base::Error> refusal_of(Removals& removals, const std::string& model_ref);

struct PullOperationsOptions {
  std::shared_ptr<provisioner::Provisioner>
      provisioner;  // REQUIRES not null, as all pointers here; all outlive the server
  Removals* removals = nullptr;
  std::shared_ptr<staging::Staging> staging;
  PeerFiles* peer_files = nullptr;
  std::shared_ptr<const model_catalog::ModelCatalog> catalog;
  // What CPU workers read instead of a model's weights; absent where a GPU reads the model's own.
  std::optional<engine::inference::repack_cache::RepackCache> packed;
  base::FileReads* files = nullptr;                        // by model_ref
  std::function<void(std::function<void()>)> on_main;      // runs a call on the main thread
  std::function<std::vector<wire::WorkerInfo>()> workers;  // on the main thread
};
// Fills in what concerns pulls, models that were pulled, and staging.
void add_pull_operations(control_api::Operations& out, PullOperationsOptions options);
// Holds what the next start of each staged model would read: a worker may have written packed weights meanwhile. On the main thread.
void stage_again(const PullOperationsOptions& options);

}  // namespace llorch::pool_managerd
