#include "orchestratord/http/anthropic/models.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "base/json_text.h"

namespace llorch::orchestratord::http::anthropic {

std::string model_object(std::string_view name, std::int64_t created_unix_s) {
  std::string out = R"({"type":"model","id":)";
  base::append_json_string(out, name);
  out += R"(,"display_name":)";
  base::append_json_string(out, name);
  return out + fmt::format(R"(,"created_at":"{}","lifecycle":"active"}})", base::rfc3339(created_unix_s * 1000));
}

}  // namespace llorch::orchestratord::http::anthropic
