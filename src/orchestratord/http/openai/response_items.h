#pragma once
// Items and tools of the Responses API as messages and tools of a chat. Pure.
#include <boost/json/fwd.hpp>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/result.h"
#include "wire/openai.h"

namespace llorch::orchestratord::http::openai {

// A function of a namespace. The model knows it by one name, which `MemberNames` has.
struct MemberName {
  std::string space;
  std::string name;
  bool operator==(const MemberName&) const = default;
};
using MemberNames = std::map<std::string, MemberName, std::less<>>;

// A text is a user's message; `instructions` are a system message before all. Calls and their results become `tool_calls` and
// messages of role tool, those of custom tools with the argument `input`; reasoning and what OpenAI's own tools did are left out.
// `members`: of the request's tools. Errors: INVALID_PARAMS with details {field, reason}; `field` is what the request calls the input.
base::Result<wire::JsonArray> chat_messages(const wire::TextOrList& input,
                                            const std::optional<std::string>& instructions, const MemberNames& members,
                                            std::string_view field = "input");

// Whether the model is not told of this tool, whose calls nobody here could carry out or write: also a custom one whose grammar is no
// regular expression.
bool is_left_out(const boost::json::value& tool);

struct ResponseTools {
  std::optional<wire::JsonArray> functions{};   // with their members under `function`
  std::set<std::string, std::less<>> plain{};   // names of those that are in no namespace
  std::set<std::string, std::less<>> custom{};  // of these those that take one text, the argument `input` of a function
  MemberNames members{};

  // What the model calls the function that a tool_choice names: a plain one, else the only member of this name.
  std::string chosen(std::string_view name) const;
};
// Errors as above.
base::Result<ResponseTools> chat_tools(const std::optional<wire::JsonArray>& tools);

}  // namespace llorch::orchestratord::http::openai
