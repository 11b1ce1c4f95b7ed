#pragma once
// The OpenAI API as others speak it too: completions and chat completions, streamed.
#include "adapter/engines/engine.h"
#include "base/json_view.h"

namespace llorch::adapter::engines {

namespace bj = boost::json;
using namespace base::json;

// `base_url` with /v1, unless it has a path of its own.
std::string v1_url(const Target& target, std::string_view path);
// Without model and what only some servers know.
bj::object chat_body(const wire::ExecuteRequest& request, std::string_view model);
// Adds `json_schema` as OpenAI's response_format.
void add_response_format(const wire::SamplingRequest& sampling, bj::object& body);
// Servers that build their events from classes send null where there is no error.
inline bool has_error(const bj::value& event) {
  const bj::value* error = member(&event, "error");
  return error != nullptr && !error->is_null();
}
// An event of completions or chat completions.
base::Result<Piece> read_choice(std::string_view data);
// GET /v1/models: whether it lists target.model, or which one it has; its context where it says so.
base::Result<> learn_models(std::string_view json, const Target& target, EngineFacts& facts);

class OpenAi : public Engine {
 public:
  std::string_view kind() const override { return "openai"; }
  Probe health(const Target& target) const override { return {v1_url(target, "/models")}; }
  std::vector<Probe> facts(const Target& target) const override { return {Probe{v1_url(target, "/models")}}; }
  base::Result<Submission> submit(const wire::ExecuteRequest& request, const Target& target,
                                  const EngineFacts& facts) const override;
  base::Result<Piece> read(std::string_view data) const override { return read_choice(data); }

 protected:
  base::Result<> read_facts(std::size_t index, std::string_view json, const Target& target,
                            EngineFacts& facts) const override;
};

}  // namespace llorch::adapter::engines
