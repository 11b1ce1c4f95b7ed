#pragma once
// The model of a request that names none. Pure.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "orchestratord/http/chat/parsing.h"
#include "wire/catalog.h"

namespace llorch::orchestratord::http::chat {

// The only one of `named`. Errors: INVALID_PARAMS, which lists the first of several.
inline base::Result<std::string> only_model(const std::vector<wire::CatalogModel>& named) {
  constexpr std::size_t kListedMax = 16;
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
