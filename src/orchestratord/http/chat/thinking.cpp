#include "orchestratord/http/chat/thinking.h"

#include <boost/json.hpp>

#include "base/parse_json.h"

namespace llorch::orchestratord::http::chat {

namespace json = boost::json;

std::optional<wire::JsonObject> with_thinking(const std::optional<wire::JsonObject>& kwargs, const Thinking& thinking) {
  json::value variables = kwargs ? base::parse_known_json(kwargs->text) : json::object();
  json::object& object = variables.get_object();
  if (thinking.enabled) object.emplace("enable_thinking", *thinking.enabled);  // emplace keeps what is there
  if (!thinking.effort.empty()) object.emplace("reasoning_effort", json::string(thinking.effort));
  if (!kwargs && object.empty()) return std::nullopt;
  return wire::JsonObject{json::serialize(variables)};
}

}  // namespace llorch::orchestratord::http::chat
