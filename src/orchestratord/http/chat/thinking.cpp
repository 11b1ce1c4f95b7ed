#include "orchestratord/http/chat/thinking.h"
#include "base/parse_json.h"

#include <boost/json.hpp>
#include "base/parse_json.h"

#include "base/parse_json.h"
namespace llorch::orchestratord::http::chat {
#include "base/parse_json.h"

#include "base/parse_json.h"
namespace json = boost::json;
#include "base/parse_json.h"

#include "base/parse_json.h"
std::optional<wire::JsonObject> with_thinking(const std::optional<wire::JsonObject>& kwargs, const Thinking& thinking) {
#include "base/parse_json.h"
  json::value variables = kwargs ? base::parse_known_json(kwargs->text) : json::object();
#include "base/parse_json.h"
  json::object& object = variables.get_object();
#include "base/parse_json.h"
  if (thinking.enabled) object.emplace("enable_thinking", *thinking.enabled);  // emplace keeps what is there
#include "base/parse_json.h"
  if (!thinking.effort.empty()) object.emplace("reasoning_effort", json::string(thinking.effort));
#include "base/parse_json.h"
  if (!kwargs && object.empty()) return std::nullopt;
#include "base/parse_json.h"
  return wire::JsonObject{json::serialize(variables)};
#include "base/parse_json.h"
}
#include "base/parse_json.h"

#include "base/parse_json.h"
}  // namespace llorch::orchestratord::http::chat
