#pragma once
// The /v2 surface of orchestratord, as contracts/openapi/orchestratord.yaml describes it.
#include <memory>
#include <string_view>
#include <vector>

#include "orchestratord/api/backups.h"
#include "orchestratord/api/context.h"
#include "orchestratord/api/meta.h"
#include "orchestratord/api/pool_control.h"
#include "orchestratord/api/pools.h"
#include "orchestratord/api/sessions.h"
#include "orchestratord/api/tasks/submit.h"
#include "orchestratord/api/tasks/tasks.h"

namespace llorch::orchestratord::api {

class Api {
 public:
  // REQUIRES: `context` outlives the Api, and the Api the server.
  explicit Api(const Context& context)
      : context_(context),
        submitter_(context),
        tasks_(context),
        sessions_(context),
        pools_(context),
        pool_control_(context),
        backups_(context),
        meta_(context) {}

  struct Route {
    std::string_view method;
    std::string_view pattern;
    net::Scope scope;
    net::Handler handler;
    net::HeadCheck check{};
  };
  // Everything that is served.
  std::vector<Route> routes();

 private:
  const Context& context_;
  tasks::Submitter submitter_;
  tasks::Tasks tasks_;
  Sessions sessions_;
  Pools pools_;
  PoolControl pool_control_;
  Backups backups_;
  Meta meta_;
};

}  // namespace llorch::orchestratord::api
