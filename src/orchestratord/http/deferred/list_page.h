#pragma once
// A page of a list, as the queries of an API want it. Pure.
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/server.h"

namespace llorch::orchestratord::http::deferred {

struct PageRules {
  std::size_t usual = 20;  // without `limit`
  std::size_t most = 100;
  // What queries are called that name the entry behind which, or before which, the page is; an empty name: there is no such query.
  std::string_view after = "after", before{};
  bool ordered = true;                               // `order` is asc or desc; else newest first
  std::string_view opening = R"("object":"list",)";  // members before `data`
};

// {"object":"list","data":[...],"first_id","last_id","has_more"}, newest first unless order=asc. `object_of` gives the JSON of the
// entry at this index of `oldest_first`, which are ids. Errors: INVALID_PARAMS.
base::Result<std::string> list_page(const net::Request& request, PageRules rules,
                                    const std::vector<std::string>& oldest_first,
                                    const std::function<std::string(std::size_t index)>& object_of);

}  // namespace llorch::orchestratord::http::deferred
