#pragma once
// A configured name as GET /v1/models shows it to clients of the Anthropic API. Pure.
#include <cstdint>
#include <string>
#include <string_view>

#include "orchestratord/http/deferred/list_page.h"

namespace llorch::orchestratord::http::anthropic {

// How this API's lists are read.
inline constexpr deferred::PageRules kPages{
    .most = 1000, .after = "after_id", .before = "before_id", .ordered = false, .opening = ""};

// `created_unix_s`: when this process began to offer it.
std::string model_object(std::string_view name, std::int64_t created_unix_s);

}  // namespace llorch::orchestratord::http::anthropic
