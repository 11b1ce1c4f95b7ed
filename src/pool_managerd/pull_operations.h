#pragma once
// The routes of models: pulls, what peers get, what is staged.
#include <functional>
#include <vector>

#include "engine/inference/repack_cache/repack_cache.h"
#include "pool_managerd/control_api/routes.h"
#include "pool_managerd/model_catalog/model_catalog.h"
#include "pool_managerd/peer_files.h"
#include "pool_managerd/provisioner/provisioner.h"
#include "pool_managerd/staging/staging.h"

namespace llorch::pool_managerd {

struct PullOperationsOptions {
  provisioner::Provisioner* provisioner =
      nullptr;  // REQUIRES not null, as pointers here are unless they say more; all outlive the server
  staging::Staging* staging = nullptr;
  PeerFiles* peer_files = nullptr;
  const model_catalog::ModelCatalog* catalog = nullptr;
  // What CPU workers read instead of a model's weights; null where a GPU reads the model's own. May be null.
  const engine::inference::repack_cache::RepackCache* packed = nullptr;
  std::function<void(std::function<void()>)> on_files;     // runs a call where it may wait for the disk
  std::function<void(std::function<void()>)> on_main;      // runs a call on the main thread
  std::function<std::vector<wire::WorkerInfo>()> workers;  // on the main thread
};
// Fills in what concerns pulls, models that were pulled, and staging.
void add_pull_operations(control_api::Operations& out, PullOperationsOptions options);
// Holds what the next start of each staged model would read: a worker may have written packed weights meanwhile. Waits for the disk.
void stage_again(const PullOperationsOptions& options);

}  // namespace llorch::pool_managerd
