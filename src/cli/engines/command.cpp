// llorch engine: the engines of other systems that are configured.
#include <fmt/core.h>

#include <algorithm>
#include <boost/json.hpp>

#include "cli/commands.h"
#include "cli/engines/plan.h"

namespace llorch::cli {

namespace bj = boost::json;

int list_engines(const GlobalOptions& global) {
  const auto config = load_config(global);
  if (!config) return report(config.error(), global.json);
  bj::array list;
  std::vector<std::vector<std::string>> rows;
  for (const config::EngineConfig& engine : config->pool_managerd.engines) {
    const std::string where = engine.command.empty() ? engine.endpoint : engine.command[0];
    rows.push_back({engine.name, engine.engine, where, engine.device, std::to_string(engine.slots)});
    list.push_back(
        {{"model_ref", "engine:" + engine.name}, {"engine", engine.engine}, {"where", where}, {"slots", engine.slots}});
  }
  if (global.json) {
    fmt::print("{}\n", bj::serialize(list));
  } else {
    print_table({"NAME", "ENGINE", "WHERE", "DEVICE", "SLOTS"}, rows);
  }
  return kOk;
}

int plan_engine(const GlobalOptions& global, const std::string& name) {
  const auto config = load_config(global);
  if (!config) return report(config.error(), global.json);
  const auto& engines = config->pool_managerd.engines;
  const auto it = std::ranges::find(engines, name, &config::EngineConfig::name);
  if (it == engines.end()) {
    return report({base::ErrorCode::kNotFound,
                   fmt::format("pool-managerd.engines has no entry {}; llorch engine list shows them", name),
                   {}},
                  global.json);
  }
  bj::array list;
  bool missing = false;
  for (const engines::Step& step : engines::plan(*it)) {
    missing = missing || step.missing;
    list.push_back({{"kind", step.kind},
                    {"detail", step.detail},
                    {"missing", step.missing},
                    {"what_to_do", step.missing ? step.what_to_do : ""}});
    if (!global.json)
      fmt::print("{:<10} {}{}\n", step.kind, step.detail, step.missing ? " MISSING: " + step.what_to_do : "");
  }
  if (global.json) fmt::print("{}\n", bj::serialize(list));
  return missing ? kFailed : kOk;
}

}  // namespace llorch::cli
