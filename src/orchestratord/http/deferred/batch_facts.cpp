#include "orchestratord/http/deferred/batch_facts.h"

#include "orchestratord/http/tasks/kept_facts.h"

namespace llorch::orchestratord::http::deferred {

namespace json = boost::json;

json::object fresh_facts(const net::http::Principal& caller, std::int64_t total, std::int64_t now_s) {
  return {{"status", "validating"},
          {"created_at", now_s},
          {"expires_at", now_s + kBatchWindowS},
          {"request_counts", json::object{{"total", total}, {"completed", 0}, {"failed", 0}}},
          {kCaller, tasks::to_json(caller)}};
}

bool is_final(std::string_view status) {
  return status == "completed" || status == "failed" || status == "expired" || status == "cancelled";
}

std::string status_of(const json::object& facts) { return tasks::text_of(facts, "status"); }

void set_status(json::object& facts, std::string_view status, std::int64_t now_s) {
  facts["status"] = status;
  facts[std::string(status) + "_at"] = now_s;
}

std::optional<std::int64_t> began_s(const json::object& facts, std::string_view status) {
  const std::int64_t at = tasks::number_of(facts, std::string(status) + "_at");
  return at > 0 ? std::optional(at) : std::nullopt;
}

void set_count(json::object& facts, std::string_view member, std::int64_t value) {
  json::value& counts = facts["request_counts"];
  if (!counts.is_object()) counts.emplace_object();
  counts.get_object()[member] = value;
}

std::int64_t count_of(const json::object& facts, std::string_view member) {
  const json::value* counts = facts.if_contains("request_counts");
  return counts != nullptr && counts->is_object() ? tasks::number_of(counts->get_object(), member) : 0;
}

}  // namespace llorch::orchestratord::http::deferred
