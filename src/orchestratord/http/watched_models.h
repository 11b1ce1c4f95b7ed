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
  // again; the name of what is gone goes as well, unless a job of it runs. Of many that are new or have changed, later reports bring the
  // rest. What has no stamp is not known: names of it, and of what lies in it, stay as they are.
  void seen(const base::PoolId& pool_id, const std::vector<wire::WatchedModel>& models);
  // The pool is paired no more: its names go, those of running jobs once these have ended.
  void unpaired(const base::PoolId& pool_id);

 private:
  struct Known {
    std::string stamp;
    bool is_taken = false;  // another model had the name
  };
  void name(const base::PoolId& pool_id, const wire::WatchedModel& model);
  bool is_taken(const base::PoolId& pool_id, const wire::WatchedModel& model) const;
  void drop_gone(const base::PoolId& pool_id, const std::vector<wire::WatchedModel>& models);
  bool drop(const wire::NamedModel& named);
  void drop_unpaired();

  const Context& context_;
  CatalogModels& catalog_;
  // By pool, of what it told last: by reference, of those that have their name or cannot get it.
  std::map<std::string, std::map<std::string, Known>> known_;
  std::map<std::string, std::set<std::string>> under_way_;  // by pool: references
  std::map<std::string, std::string> next_;                 // by pool: the reference that found no room among them
  bool is_retry_due_ = false;                               // of drop_unpaired()
  // Pools decide how often one is refused, or goes.
  base::LogLimiter refused_lines_{10, 10'000}, gone_lines_{10, 10'000};
};

}  // namespace llorch::orchestratord::http
