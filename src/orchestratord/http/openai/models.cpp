#include "orchestratord/http/openai/models.h"

#include "base/append.h"
#include "base/json_text.h"

namespace llorch::orchestratord::http::openai {

// `root` and `max_model_len` as vLLM has them.
std::string model_object(const ListedModel& model, std::int64_t created_unix_s) {
  std::string out = R"({"id":)";
  base::append_json_string(out, model.name);
  base::append(out, R"(,"object":"model","created":{},"owned_by":"llama-orch","root":)", created_unix_s);
  base::append_json_string(out, model.name);
  if (model.context_tokens) base::append(out, R"(,"max_model_len":{})", *model.context_tokens);
  return out + '}';
}

std::string model_list(const std::vector<ListedModel>& models, std::int64_t created_unix_s) {
  std::string out = R"({"object":"list","data":[)";
  for (const ListedModel& model : models) {
    if (out.back() != '[') out += ',';
    out += model_object(model, created_unix_s);
  }
  return out + "]}";
}

}  // namespace llorch::orchestratord::http::openai
