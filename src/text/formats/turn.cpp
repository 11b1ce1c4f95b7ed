#include "text/formats/turn.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/parse_json.h"
#include "base/sha256.h"

namespace llorch::text::formats {
namespace {

namespace bj = boost::json;

constexpr std::size_t kShortIdBytes = 9;

bool holds_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

// Whether some use of `arguments` takes a filter or asks for its type; otherwise all of them join it to texts.
bool filters_arguments(std::string_view source) {
  constexpr std::string_view kWord = "arguments";
  for (std::size_t at = source.find(kWord); at != std::string_view::npos; at = source.find(kWord, at + 1)) {
    std::string_view behind = source.substr(at + kWord.size());
    behind.remove_prefix(std::min(behind.find_first_not_of("'\")] "), behind.size()));
    if (behind.starts_with('|') || behind.starts_with("is mapping") || behind.starts_with("is string") ||
        behind.starts_with(".items") || behind.starts_with(".keys")) {
      return true;
    }
  }
  return false;
}

std::string short_id(std::string_view id) {
  const auto is_alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  if (id.size() == kShortIdBytes && std::all_of(id.begin(), id.end(), is_alphanumeric)) return std::string(id);
  return base::to_hex(base::sha256(id)).substr(0, kShortIdBytes);
}

// Levels of arrays and objects above the arguments of a call, in the text of the messages.
constexpr std::size_t kLevelsAboveArguments = 5;

tl::unexpected<base::Error> refused_message(std::string field, std::string_view what,
                                            std::string_view reason = "type") {
  std::string message = fmt::format("{} {}", field, what);
  return base::fail(base::Error{base::ErrorCode::kInvalidParams, std::move(message), {}}
                        .with("field", std::move(field))
                        .with("reason", std::string(reason)));
}

class Conversation {
 public:
  explicit Conversation(const Turn& turn) : turn_(turn) {}

  base::Result<bj::array> convert(bj::array messages) {
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (!messages[i].is_object()) return refused_message(fmt::format("messages[{}]", i), "must be an object");
      TRY(message(messages[i].get_object(), i));
    }
    return turn_.has_one_call ? split(std::move(messages)) : std::move(messages);
  }

 private:
  static bj::array* calls_of(bj::object& message) {
    bj::value* calls = message.if_contains("tool_calls");
    return calls != nullptr && calls->is_array() && !calls->get_array().empty() ? &calls->get_array() : nullptr;
  }
  static std::string text_of(const bj::object& object, std::string_view key) {
    const bj::value* value = object.if_contains({key.data(), key.size()});
    return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
  }

  base::Result<> message(bj::object& message, std::size_t number) {
    if (bj::array* calls = calls_of(message)) {
      for (std::size_t i = 0; i < calls->size(); ++i) {
        TRY(call((*calls)[i], fmt::format("messages[{}].tool_calls[{}]", number, i)));
      }
      const bj::value* content = message.if_contains("content");
      if (content == nullptr || content->is_null()) {
        message["content"] = turn_.content_may_be_null ? bj::value() : bj::value("");
      }
      return {};
    }
    // `tool_calls` that hold no call mean the same as none, and templates do not ask.
    if (const bj::value* calls = message.if_contains("tool_calls");
        calls != nullptr && (calls->is_null() || calls->is_array())) {
      message.erase("tool_calls");
    }
    if (text_of(message, "role") == "tool") result(message);
    return {};
  }

  base::Result<> call(bj::value& value, const std::string& field) {
    if (!value.is_object()) return refused_message(field, "must be an object");
    bj::object& call = value.get_object();
    const std::string id = text_of(call, "id");
    bj::value* function = call.if_contains("function");
    if (function == nullptr || !function->is_object()) return refused_message(field + ".function", "must be an object");
    names_[id] = text_of(function->get_object(), "name");
    bj::value& arguments = function->get_object()["arguments"];
    if (arguments.is_string()) object_steps_ += base::object_steps(arguments.get_string());
    if (object_steps_ > base::kObjectStepsMax) {
      return refused_message(field + ".function.arguments", "have too many members, with those of earlier calls",
                             "length");
    }
    bj::error_code error;
    bj::parse_options options;
    if (turn_.arguments_are_objects) options.max_depth -= kLevelsAboveArguments;  // the messages are read again
    bj::value object = arguments.is_string() ? base::parse_json(arguments.get_string(), error, {}, options) : arguments;
    if (arguments.is_null() || (arguments.is_string() && arguments.get_string().empty()))
      object = bj::object(), error = {};
    if (error == bj::error::too_deep) {
      return refused_message(field + ".function.arguments",
                             fmt::format("are nested more than {} levels deep", options.max_depth), "depth");
    }
    if (error || !object.is_object())
      return refused_message(field + ".function.arguments", "must be the text of a JSON object");
    if (turn_.arguments_are_objects) {
      arguments = std::move(object);
    } else if (!arguments.is_string()) {
      arguments = bj::serialize(object);
    }
    if (turn_.ids_have_nine_characters) call["id"] = short_id(id);  // last: operator[] moves the members
    return {};
  }

  void result(bj::object& message) {
    const std::string id = text_of(message, "tool_call_id");
    if (turn_.results_have_names && !message.contains("name") && names_.contains(id)) message["name"] = names_[id];
    if (turn_.ids_have_nine_characters) message["tool_call_id"] = short_id(id);
  }

  // [a, b of one assistant] [a's result] [b's result] becomes [a] [a's result] [b] [b's result]; what else the message says
  // stays with the first call. Linear in the messages.
  static bj::array split(bj::array messages) {
    bj::array out;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      bj::object& message = messages[i].get_object();
      bj::array* const several = calls_of(message);
      if (several == nullptr || several->size() == 1) {
        out.push_back(std::move(messages[i]));
        continue;
      }
      std::size_t end = i + 1;
      while (end < messages.size() && text_of(messages[end].get_object(), "role") == "tool") ++end;
      std::map<std::string, std::vector<std::size_t>> results;  // by the ids of their calls, the first one last
      for (std::size_t j = end; --j > i;) results[text_of(messages[j].get_object(), "tool_call_id")].push_back(j);
      std::vector<bool> taken(end, false);
      const bj::array calls = std::move(*several);
      bj::object next{{"content", ""}};
      if (const bj::value* role = message.if_contains("role")) next["role"] = *role;
      for (const bj::value& call : calls) {
        bj::object one = &call == calls.data() ? std::move(message) : next;
        one["tool_calls"] = bj::array{call};
        out.push_back(std::move(one));
        const auto of = results.find(text_of(call.get_object(), "id"));
        if (of == results.end() || of->second.empty()) continue;
        const std::size_t result = of->second.back();
        of->second.pop_back();
        taken[result] = true;
        out.push_back(std::move(messages[result]));
      }
      for (std::size_t j = i + 1; j < end; ++j) {
        if (!taken[j]) out.push_back(std::move(messages[j]));
      }
      i = end - 1;
    }
    return out;
  }

  const Turn& turn_;
  std::uint64_t object_steps_ = 0;            // of the arguments so far: each is a text of its own
  std::map<std::string, std::string> names_;  // of the functions, by the ids of their calls
};

}  // namespace

Turn Turn::of(std::string_view source) {
  return {
      .arguments_are_objects = filters_arguments(source),
      .ids_have_nine_characters = holds_one_of(source, {"length != 9", "length == 9", "length 9"}),
      .content_may_be_null = holds_one_of(source, {"content'] is none", "content is none", "content == none"}),
      .results_have_names =
          holds_one_of(source, {"message.name", "message['name']", "message[\"name\"]", ".get('name'"}),
      .has_one_call = holds_one_of(source, {"tool_calls[0]", "single tool-calls"}),
  };
}

base::Result<std::string> Turn::apply(std::string_view messages) const {
  bj::error_code error;
  bj::value parsed = base::parse_json(messages, error);
  if (error || !parsed.is_array()) return refused_message("messages", "must be an array");
  return bj::serialize(TRY(Conversation(*this).convert(std::move(parsed.get_array()))));
}

}  // namespace llorch::text::formats
