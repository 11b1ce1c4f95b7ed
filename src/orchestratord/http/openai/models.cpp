#include "orchestratord/http/openai/models.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "base/json_text.h"

namespace llorch::orchestratord::http::openai {

std::string model_object(const std::string& name, std::int64_t created_unix_s) {
  std::string out = R"({"id":)";
  base::append_json_string(out, name);
  return out + fmt::format(R"(,"object":"model","created":{},"owned_by":"llama-orch"}})", created_unix_s);
}

std::string model_list(const std::vector<std::string>& names, std::int64_t created_unix_s) {
  std::string out = R"({"object":"list","data":[)";
  for (const std::string& name : names) {
    if (out.back() != '[') out += ',';
    out += model_object(name, created_unix_s);
  }
  return out + "]}";
}

std::string anthropic_model_object(const std::string& name, std::int64_t created_unix_s) {
  std::string out = R"({"type":"model","id":)";
  base::append_json_string(out, name);
  out += R"(,"display_name":)";
  base::append_json_string(out, name);
  return out + fmt::format(R"(,"created_at":"{}"}})", base::rfc3339(created_unix_s * 1000));
}

std::string anthropic_model_list(const std::vector<std::string>& names, std::int64_t created_unix_s) {
  std::string out = R"({"data":[)";
  for (const std::string& name : names) {
    if (out.back() != '[') out += ',';
    out += anthropic_model_object(name, created_unix_s);
  }
  out += R"(],"has_more":false)";
  for (const auto& [member, name] : {std::pair("first_id", names.empty() ? nullptr : &names.front()),
                                     std::pair("last_id", names.empty() ? nullptr : &names.back())}) {
    out += fmt::format(R"(,"{}":)", member);
    if (name == nullptr) {
      out += "null";
    } else {
      base::append_json_string(out, *name);
    }
  }
  return out + "}";
}

}  // namespace llorch::orchestratord::http::openai
