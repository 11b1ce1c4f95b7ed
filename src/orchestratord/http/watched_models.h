#pragma once
// Names for the models that lie in the directories which pools watch.
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/log_limiter.h"
#include "orchestratord/http/catalog_models.h"
#include "orchestratord/http/context.h"

namespace llorch::orchestratord::http {

// REQUIRES: `context` and `catalog` outlive it; used on the request executor's thread alone.
class WatchedModels {
 public:
  WatchedModels(const Context& context, CatalogModels& catalog) : context_(context), catalog_(catalog) {}

  // What the pool's directories hold now. What is new gets a name, unless another model has it; what has changed is looked at
  // again; the name of what is gone goes as well. Of many that are new or have changed, later reports bring the rest.
  void seen(const base::PoolId& pool_id, const std::vector<wire::WatchedModel>& models);

 private:
  void name(const base::PoolId& pool_id, const wire::WatchedModel& model);
  void drop_gone(const base::PoolId& pool_id, const std::vector<wire::WatchedModel>& models);

  const Context& context_;
  CatalogModels& catalog_;
  // By pool, of what it told last: reference -> stamp, of those that have their name or cannot get it.
  std::map<std::string, std::map<std::string, std::string>> known_;
  std::map<std::string, std::set<std::string>> under_way_;  // by pool: references
  std::map<std::string, std::string> next_;                 // by pool: the reference that found no room among them
  base::LogLimiter refused_lines_{10, 10'000};              // pools decide how often one is refused
};

}  // namespace llorch::orchestratord::http
