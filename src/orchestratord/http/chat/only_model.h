#pragma once
// The model of a request that names none. Pure, but for the facts that the catalog holds.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/models/catalog.h"
#include "wire/catalog.h"

namespace llorch::orchestratord::http::chat {

// `named` with the facts that somebody has asked for; nobody is asked now.
inline std::vector<wire::CatalogModel> with_known_facts(std::vector<wire::CatalogModel> named,
                                                        models::Catalog& catalog) {
  for (wire::CatalogModel& model : named) model.facts = catalog.known_facts(model.model_ref);
  return named;
}

// The only one of `named` that may do `workload`: one whose facts say that it does another is left out, unless all do; absent: any is
// meant. Errors: INVALID_PARAMS, which lists the first of several.
inline base::Result<std::string> only_model(std::vector<wire::CatalogModel> named,
                                            std::optional<wire::Workload> workload) {
  constexpr std::size_t kListedMax = 16;
  const auto does_another = [&](const wire::CatalogModel& model) {
    return workload && model.facts && models::workload_of(*model.facts) != *workload;
  };
  if (!std::ranges::all_of(named, does_another)) std::erase_if(named, does_another);
  if (named.size() == 1) return named.front().model_id;
  if (named.empty()) return refused("model", "missing", "model is required: no model has a name");
  std::string list;
  for (std::size_t i = 0; i < std::min(named.size(), kListedMax); ++i) {
    list.append(i == 0 ? "" : ", ").append(named[i].model_id);
  }
  return refused("model", "missing",
                 fmt::format("model is required where several models have a name: {}{}", list,
                             named.size() > kListedMax ? ", ..." : ""));
}

}  // namespace llorch::orchestratord::http::chat
