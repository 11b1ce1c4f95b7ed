#pragma once
// Which models garbage collection removes. Pure.
#include <functional>
#include <vector>

#include "wire/catalog.h"

namespace llorch::orchestratord::models {

// Of `models` those that no job has named for `wanted.unused_ms`; then, the least lately named first, as many more as it takes
// for the rest to have at most `wanted.bytes_max`. Names of one file go together, and none goes that `may_go` refuses.
std::vector<wire::NamedModel> to_collect(std::vector<wire::NamedModel> models, const wire::CatalogGcRequest& wanted,
                                         std::int64_t now_unix_ms,
                                         const std::function<bool(const wire::NamedModel&)>& may_go);

}  // namespace llorch::orchestratord::models
