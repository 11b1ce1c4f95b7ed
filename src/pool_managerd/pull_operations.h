#pragma once
// The routes of the provisioner.
#include <functional>
#include <vector>

#include "pool_managerd/control_api/routes.h"
#include "pool_managerd/provisioner/provisioner.h"

namespace llorch::pool_managerd {

struct PullOperationsOptions {
  provisioner::Provisioner* provisioner = nullptr;         // REQUIRES not null; all outlive the server
  std::function<void(std::function<void()>)> on_main;      // runs a call on the main thread
  std::function<std::vector<wire::WorkerInfo>()> workers;  // on the main thread
};
// Fills in what concerns pulls and models that were pulled.
void add_pull_operations(control_api::Operations& out, PullOperationsOptions options);

}  // namespace llorch::pool_managerd
