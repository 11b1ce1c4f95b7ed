#pragma once
// A page of a list, as the queries limit, order and after want it. Pure.
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/server.h"

namespace llorch::orchestratord::http::openai {

struct PageLimits {
  std::size_t usual = 20;  // without `limit`
  std::size_t most = 100;
};

// {"object":"list","data":[...],"first_id","last_id","has_more"}, newest first unless order=asc. `object_of` gives the JSON of the
// entry at this index of `oldest_first`, which are ids. Errors: INVALID_PARAMS.
base::Result<std::string> list_page(const net::Request& request, PageLimits limits,
                                    const std::vector<std::string>& oldest_first,
                                    const std::function<std::string(std::size_t index)>& object_of);

}  // namespace llorch::orchestratord::http::openai
