#pragma once
// The engines of other systems that this pool was configured with: what they are as models, and how their workers start.
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/config.h"
#include "pool_managerd/engines/containers.h"
#include "pool_managerd/gpu_inventory/device.h"
#include "pool_managerd/model_catalog/model_plan.h"
#include "wire/pool.h"

namespace llorch::pool_managerd::engines {

// Whether a model reference names an engine rather than files: "engine:NAME".
bool is_engine_ref(std::string_view model_ref);
// Whether a device stands for an engine that runs elsewhere (EngineTable::devices).
bool is_engine_device(std::string_view gpu_id);

// Thread-safe.
class EngineTable {
 public:
  EngineTable(std::vector<config::EngineConfig> engines, config::InstallPolicyConfig policy);

  // What stands for the engines that run elsewhere: a device each, without memory, so that a worker of one goes there and no model
  // of files ever does.
  std::vector<gpu_inventory::Device> devices() const;

  // Errors: MODEL_NOT_FOUND, no engine of this pool has the name; POOL_UNREADY with details.reason ENGINE_NOT_INSTALLED.
  base::Result<wire::ModelFacts> describe(const std::string& model_ref) const;
  base::Result<model_catalog::ModelPlan> plan(const std::string& model_ref) const;
  // A worker of the model has asked its engine. What it says of its context counts from now on.
  void learned(const std::string& model_ref, std::int64_t context_tokens);

  // Of worker-adapterd, what is the engine's alone. REQUIRES: plan() of the reference succeeded.
  std::vector<std::string> arguments(const std::string& model_ref) const;
  // Variables that its program is started with.
  std::map<std::string, std::string> environment(const std::string& model_ref) const;
  // What its program runs in, of one worker alone; nothing: it runs in none.
  std::optional<Container> container(const std::string& model_ref, std::string_view worker_id) const;
  // Behind all other arguments: the engine's program, which worker-adapterd starts. Empty: it runs already.
  std::vector<std::string> command(const std::string& model_ref, const std::optional<Container>& container) const;

 private:
  base::Result<const config::EngineConfig*> find(const std::string& model_ref) const;

  base::Result<const config::EngineConfig*> find_installed(const std::string& model_ref) const;

  const std::vector<config::EngineConfig> engines_;
  const config::InstallPolicyConfig policy_;
  mutable std::mutex mutex_;
  std::map<std::string, std::int64_t> contexts_;  // by name, as learned
};

}  // namespace llorch::pool_managerd::engines
