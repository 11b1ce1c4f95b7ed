#pragma once
// What is kept of a batch beside its input and its answers, whichever API it came by. Pure.
//
// An object: `status` ("validating", "in_progress", "cancelling", or final: "completed", "failed", "expired", "cancelled") and, as
// `<status>_at`, when each began; `expires_at`, when it ends at the latest; `request_counts` {total, completed, failed};
// `caller`. Times are in seconds. What else is in it is its API's.
#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "net/http/principal.h"

namespace llorch::orchestratord::http::deferred {

inline constexpr std::string_view kCaller = "caller";
inline constexpr std::int64_t kBatchWindowS = 24 * 3600;
inline constexpr std::int64_t kBatchRequestsMax = 50'000;
inline constexpr std::size_t kUnfinishedBatchesMax = 64;  // of one account, of all APIs together

// The facts of a batch that begins now, `total` requests of `caller`.
boost::json::object fresh_facts(const net::http::Principal& caller, std::int64_t total, std::int64_t now_s);

bool is_final(std::string_view status);
std::string status_of(const boost::json::object& facts);
void set_status(boost::json::object& facts, std::string_view status, std::int64_t now_s);
// When this status began; nothing: it did not.
std::optional<std::int64_t> began_s(const boost::json::object& facts, std::string_view status);
void set_count(boost::json::object& facts, std::string_view member, std::int64_t value);
std::int64_t count_of(const boost::json::object& facts, std::string_view member);

}  // namespace llorch::orchestratord::http::deferred
