#include "orchestratord/http/openai/models.h"

#include <fmt/format.h>

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

}  // namespace llorch::orchestratord::http::openai
