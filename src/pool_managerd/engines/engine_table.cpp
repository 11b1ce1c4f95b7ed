#include "pool_managerd/engines/engine_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "adapter/engines/parameters.h"
#include "adapter/setup/installation.h"
#include "base/assert.h"
#include "base/sha256.h"

namespace llorch::pool_managerd::engines {
namespace {

namespace setup = adapter::setup;
using config::EngineConfig;

constexpr std::string_view kScheme = "engine:";
constexpr std::string_view kDevicePrefix = "engine-";
constexpr std::size_t kContainerNameDigits = 16;
constexpr const char* kVllmLogLevel = "VLLM_LOGGING_LEVEL";

// Of an engine elsewhere its own; else the one whose memory it takes.
std::string device_of(const EngineConfig& engine) {
  return engine.device.empty() ? fmt::format("{}{}", kDevicePrefix, engine.name) : engine.device;
}

std::string path_variable() {
  const char* path = std::getenv("PATH");
  return path == nullptr ? "" : path;
}

// Names what answers: two pools with the same engine at the same place serve one model, and never one of files.
std::string digest_of(const EngineConfig& engine) {
  base::Sha256 hash;
  for (const std::string* part : {&engine.engine, &engine.endpoint, &engine.model}) {
    hash.update(*part);
    hash.update(std::string_view("\0", 1));
  }
  for (const std::string& part : engine.command) hash.update(part + '\n');
  if (setup::is_installed_here(engine)) hash.update(setup::new_installation(engine, {}).identity);
  return "sha256:" + base::to_hex(hash.digest());
}

// What a program says is kept in its worker's log, where no prompts are to be. Older versions of vLLM log each request with its prompt, at a
// level that this leaves out. A container without a command runs its image's; of this process's environment it has what its entry names.
std::vector<EngineConfig> with_quiet_logs(std::vector<EngineConfig> engines) {
  const char* inherited = std::getenv(kVllmLogLevel);
  for (EngineConfig& engine : engines) {
    const bool is_started = !engine.command.empty() || engine.provisioning.mode == config::ProvisioningMode::kContainer;
    if (engine.engine != "vllm" || !is_started) continue;
    engine.environment.try_emplace(kVllmLogLevel, inherited == nullptr ? "WARNING" : inherited);
  }
  return engines;
}

}  // namespace

bool is_engine_ref(std::string_view model_ref) { return model_ref.starts_with(kScheme); }

bool is_engine_device(std::string_view gpu_id) { return gpu_id.starts_with(kDevicePrefix); }

EngineTable::EngineTable(std::vector<EngineConfig> engines, config::InstallPolicyConfig policy)
    : engines_(with_quiet_logs(std::move(engines))), policy_(std::move(policy)) {}

std::vector<gpu_inventory::Device> EngineTable::devices() const {
  std::vector<gpu_inventory::Device> out;
  for (const EngineConfig& engine : engines_) {
    if (!engine.device.empty()) continue;
    gpu_inventory::Device device;
    device.gpu_id = device_of(engine);
    device.model = fmt::format("{} at {}", engine.engine, engine.endpoint);
    device.device_class = "external";
    device.memory_architecture = "external";
    out.push_back(std::move(device));
  }
  return out;
}

base::Result<const EngineConfig*> EngineTable::find(const std::string& model_ref) const {
  ASSERT(is_engine_ref(model_ref));
  const std::string_view name = std::string_view(model_ref).substr(kScheme.size());
  const auto it = std::ranges::find(engines_, name, &EngineConfig::name);
  if (it != engines_.end()) return &*it;
  return base::fail(base::Error{
      base::ErrorCode::kModelNotFound,
      "this pool has no engine of this name; pool-managerd.engines lists them",
      {}}.with("reason", std::string("engine")));
}

base::Result<const EngineConfig*> EngineTable::find_installed(const std::string& model_ref) const {
  const EngineConfig* engine = TRY(find(model_ref));
  if (!setup::is_installed_here(*engine) || setup::find_installation(setup::directory_of(*engine, policy_))) {
    return engine;
  }
  return base::fail(base::Error{
      base::ErrorCode::kPoolUnready,
      fmt::format("the engine {0} is not installed on its node; there: llorch engine install {0}", engine->name),
      {}}.with("reason", std::string("ENGINE_NOT_INSTALLED")));
}

base::Result<wire::ModelFacts> EngineTable::describe(const std::string& model_ref) const {
  const EngineConfig& engine = *TRY(find_installed(model_ref));
  wire::ModelFacts facts;
  facts.model_ref = model_ref;
  facts.digest = digest_of(engine);
  facts.architecture = engine.engine;
  facts.context_length = engine.context_tokens;
  {
    const std::lock_guard lock(mutex_);
    const auto it = contexts_.find(engine.name);
    if (it != contexts_.end()) facts.context_length = it->second;
  }
  facts.slots = engine.slots;
  facts.memory_bytes = engine.memory_bytes;
  facts.takes = wire::PromptForm::kText;
  facts.replayable = false;
  facts.device = device_of(engine);
  facts.parameters.emplace();
  for (const std::string_view name : adapter::engines::parameters_of(engine.engine)) {
    facts.parameters->emplace_back(name);
  }
  return facts;
}

base::Result<model_catalog::ModelPlan> EngineTable::plan(const std::string& model_ref) const {
  const EngineConfig& engine = *TRY(find_installed(model_ref));
  model_catalog::ModelPlan plan;
  plan.architecture = engine.engine;
  plan.shape = {.context_tokens = engine.context_tokens, .slots = engine.slots, .kv_tokens = 0, .kv_dtype = ""};
  plan.memory.push_back({.weights_bytes = engine.memory_bytes});
  return plan;
}

void EngineTable::learned(const std::string& model_ref, std::int64_t context_tokens) {
  const auto engine = find(model_ref);
  if (!engine || context_tokens <= 0) return;
  const std::lock_guard lock(mutex_);
  contexts_[(*engine)->name] = context_tokens;
}

std::vector<std::string> EngineTable::arguments(const std::string& model_ref) const {
  const auto found = find(model_ref);
  ASSERT(found.has_value());
  const EngineConfig& engine = **found;
  std::vector<std::string> out{"--engine",       engine.engine,
                               "--endpoint",     engine.endpoint,
                               "--model-digest", digest_of(engine),
                               "--context",      std::to_string(engine.context_tokens),
                               "--slots",        std::to_string(engine.slots),
                               "--silence-ms",   std::to_string(engine.silence_ms),
                               "--memory-bytes", std::to_string(engine.memory_bytes)};
  const auto add = [&out](std::string_view name, const std::string& value) {
    if (!value.empty()) out.insert(out.end(), {std::string(name), value});
  };
  add("--model", engine.model);
  for (const auto& [field, name] : engine.field_names) add("--field-name", fmt::format("{}={}", field, name));
  add("--api-key-file", engine.api_key_file);
  add("--ca-file", engine.ca_file);
  add("--proxy", engine.proxy);
  if (setup::is_installed_here(engine)) add("--installation", setup::directory_of(engine, policy_).string());
  return out;
}

std::vector<std::string> EngineTable::command(const std::string& model_ref,
                                              const std::optional<Container>& container) const {
  const auto found = find(model_ref);
  ASSERT(found.has_value());
  std::vector<std::string> out = setup::start_command(**found, policy_, path_variable());
  if (container) std::ranges::replace(out, std::string("{container}"), container->name);
  return out;
}

std::optional<Container> EngineTable::container(const std::string& model_ref, std::string_view worker_id) const {
  const auto found = find(model_ref);
  ASSERT(found.has_value());
  const EngineConfig& engine = **found;
  if (engine.provisioning.mode != config::ProvisioningMode::kContainer) return std::nullopt;
  std::string runtime = setup::container_runtime(engine, path_variable());
  if (runtime.empty()) return std::nullopt;
  // An id has characters that no container's name may have.
  base::Sha256 hash;
  hash.update(worker_id);
  return Container{
      .runtime = std::move(runtime),
      .name = fmt::format("llorch-{}-{}", engine.name, base::to_hex(hash.digest()).substr(0, kContainerNameDigits))};
}

std::map<std::string, std::string> EngineTable::environment(const std::string& model_ref) const {
  const auto found = find(model_ref);
  ASSERT(found.has_value());
  return (*found)->environment;
}

}  // namespace llorch::pool_managerd::engines
