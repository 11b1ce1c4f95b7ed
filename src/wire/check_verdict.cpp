#include "wire/check_verdict.h"

#include <fmt/core.h>

#include <boost/json.hpp>

#include "base/parse_json.h"
#include "wire/json.h"
#include "wire/task.h"

namespace llorch::wire {

std::string encode_verdict(const base::Result<>& checked) {
  if (checked) return R"({"valid":true})";
  return fmt::format(R"({{"error":{}}})", encode(error_body(checked.error(), {})));
}

std::optional<base::Result<>> decode_verdict(std::string_view line) {
  boost::json::error_code failed;
  const boost::json::value said = base::parse_json(line, failed);
  if (failed || !said.is_object()) return std::nullopt;
  if (said.get_object().contains("valid")) return base::Result<>();
  const auto* error = said.get_object().if_contains("error");
  if (error == nullptr) return std::nullopt;
  const auto body = decode<ErrorBody>(boost::json::serialize(*error));
  if (!body) return std::nullopt;
  return base::Result<>(base::fail(to_error(*body)));
}

}  // namespace llorch::wire
