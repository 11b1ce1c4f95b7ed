#include "text/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <utility>

#include "base/error_detail.h"
#include "base/find_text.h"
#include "base/parse_json.h"
#include "base/utf8.h"
#include "text/jinja/refusal.h"
#include "text/jinja/value/text.h"
#include "text/roles.h"

namespace llorch::text {
namespace {

namespace json = boost::json;

constexpr std::string_view kTemplateForTools = "tool_use";  // the name models give it
constexpr std::string_view kTemplateForPairs = "rerank";

base::Error refused(std::string_view field, std::string_view reason, std::string message) {
  return base::Error{base::ErrorCode::kInvalidParams, std::move(message), {}}
      .with("field", std::string(field))
      .with("reason", std::string(reason));
}

std::optional<std::string> spelling(const TokenizerData& data, const std::optional<TokenId>& id) {
  if (!id || index(*id) >= data.tokens.size()) return std::nullopt;
  const std::string& token = data.tokens[index(*id)];
  return base::is_valid_utf8(token) ? std::optional(token) : std::nullopt;  // templates work on text alone
}

base::Result<json::value> parsed(std::string_view field, const std::string& text, json::kind wanted) {
  json::error_code error;
  json::value value = base::parse_json(text, error);
  if (error || value.kind() != wanted)
    return base::fail(refused(
        field, "type", fmt::format("{} must be {}", field, wanted == json::kind::array ? "an array" : "an object")));
  return value;
}

base::Result<> check_messages(const json::array& messages) {
  if (messages.empty()) return base::fail(refused("messages", "length", "messages is empty; send at least one"));
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const json::object* message = messages[i].if_object();
    const json::value* role = message != nullptr ? message->if_contains("role") : nullptr;
    if (role == nullptr || !role->is_string())
      return base::fail(refused(fmt::format("messages[{}].role", i), "type",
                                fmt::format("messages[{}] must be an object with a string `role`", i)));
  }
  return {};
}

// What the template sees. Absent tools and documents are none, as templates expect.
base::Result<json::object> variables_of(const ChatInput& input) {
  json::object variables;
  if (input.template_kwargs) {
    const json::value kwargs = TRY(parsed("chat_template_kwargs", *input.template_kwargs, json::kind::object));
    variables = kwargs.get_object();
    for (const std::string_view own :
         {"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"}) {
      if (variables.contains(own))
        return base::fail(
            refused("chat_template_kwargs", "unknown", fmt::format("chat_template_kwargs must not hold {}", own)));
    }
  }
  json::value messages = TRY(parsed("messages", input.messages, json::kind::array));
  TRY(check_messages(messages.get_array()));
  variables["messages"] = std::move(messages);
  variables["tools"] = input.tools ? TRY(parsed("tools", *input.tools, json::kind::array)) : json::value();
  variables["documents"] =
      input.documents ? TRY(parsed("documents", *input.documents, json::kind::array)) : json::value();
  variables["add_generation_prompt"] = input.add_generation_prompt;
  return variables;
}

// The messages as they are or, where the template itself refuses them, in roles that it takes (ADR 0087). All renders together have the
// steps of one. Errors: of the first.
base::Result<jinja::RenderedText> render_in_roles(const jinja::ChatTemplate& chat_template, jinja::RenderInput input) {
  std::uint64_t own_steps = 0;
  if (input.steps == nullptr) input.steps = &own_steps;
  auto as_sent = chat_template.render(input);
  bool is_refused = !as_sent && jinja::is_refusal(as_sent.error());
  for (const RoleRule rule : kRoleRules) {
    if (!is_refused) break;
    if (!follow(rule, input.variables["messages"].get_array())) continue;
    auto adapted = chat_template.render(input);
    if (adapted) return adapted;
    is_refused = jinja::is_refusal(adapted.error());
  }
  return as_sent;
}

// Not by its tokenizer, whose refusals are of the text.
bool is_refused_by_template(const base::Error& error) {
  const std::string reason = "chat_template";
  return base::has_detail(error, "reason", "chat_template");
}

// As a render does that works on so many bytes. INVALID_PARAMS, as of a render, once `steps` are more than it may take.
base::Result<> take_steps(std::uint64_t& steps, std::size_t bytes) {
  const jinja::RenderLimits limits;
  jinja::Budget budget(limits, steps);
  const bool has_left = budget.text_work(bytes);
  steps = budget.steps();
  if (has_left) return {};
  return base::fail(refused("messages", "chat_template", budget.failure().message));
}

// The template with the texts in place of each {query} and {document}.
base::Result<ChatPrompt> filled_in(const Tokenizer& tokenizer, std::string_view form, std::string_view query,
                                   std::string_view document, TextBudget* budget, std::uint64_t& steps) {
  struct Place {
    std::string_view name, text;
    std::size_t next;
  };
  std::array<Place, 2> places{Place{"{query}", query, form.find("{query}")},
                              Place{"{document}", document, form.find("{document}")}};
  constexpr std::size_t kBytesMax = jinja::RenderLimits{}.output_bytes_max;
  std::vector<TextRun> runs;
  ChatPrompt out;
  for (std::size_t at = 0; at < form.size();) {
    Place& place = places[0].next < places[1].next ? places[0] : places[1];
    const std::size_t end = std::min(place.next, form.size());
    TRY(take_steps(steps, end - at + place.text.size()));
    runs.push_back({.text = std::string(form.substr(at, end - at)), .origin = TextOrigin::kTemplate});
    out.text += runs.back().text;
    at = end;
    if (at == form.size()) break;
    if (out.text.size() + place.text.size() > kBytesMax) {
      return base::fail(refused(
          "query", "length",
          fmt::format("the model's template for reranking makes more than {} bytes of this pair; send less text",
                      kBytesMax)));
    }
    runs.push_back({.text = std::string(place.text), .origin = TextOrigin::kData});
    out.text += place.text;
    at += place.name.size();
    place.next = form.find(place.name, at);
  }
  out.tokens = TRY(tokenizer.encode(runs, false, budget));
  return out;
}

}  // namespace

std::string_view template_for_tools(const TokenizerData& data) {
  for (const NamedChatTemplate& named : data.named_chat_templates) {
    if (named.name == kTemplateForTools) return named.text;
  }
  return data.chat_template;
}

Chat::Chat(const TokenizerData& data) : bos_token_(spelling(data, data.bos)), eos_token_(spelling(data, data.eos)) {
  if (!data.chat_template.empty()) {
    default_ = jinja::ChatTemplate::parse(data.chat_template);
    if (*default_) template_text_ = data.chat_template;
  }
  for (const NamedChatTemplate& named : data.named_chat_templates) {
    if (named.name == kTemplateForTools) with_tools_ = jinja::ChatTemplate::parse(named.text);
    if (named.name == kTemplateForPairs) rerank_ = named.text;
  }
}

base::Result<std::optional<ChatPrompt>> Chat::pair_prompt(const Tokenizer& tokenizer, std::string_view query,
                                                          std::string_view document, std::chrono::sys_seconds now,
                                                          TextBudget* budget, std::uint64_t* template_steps) const {
  std::uint64_t own_steps = 0;
  std::uint64_t& steps = template_steps != nullptr ? *template_steps : own_steps;
  if (!rerank_.empty()) return TRY(filled_in(tokenizer, rerank_, query, document, budget, steps));
  if (!default_ || !*default_) return std::optional<ChatPrompt>();
  json::array messages;
  messages.push_back({{"role", "query"}, {"content", query}});
  messages.push_back({{"role", "document"}, {"content", document}});
  auto told = prompt(tokenizer,
                     {.messages = json::serialize(messages), .now = now, .budget = budget, .template_steps = &steps});
  if (!told) TRY(take_steps(steps, 0));  // whether it would tell this pair is not known then
  if (!told && is_refused_by_template(told.error())) return std::optional<ChatPrompt>();  // it tells no pairs
  if (!told) return base::fail(std::move(told).error());
  const bool shows_both = base::find_text(told->text, query) != std::string::npos &&
                          base::find_text(told->text, document) != std::string::npos;
  return shows_both ? std::optional(*std::move(told)) : std::nullopt;
}

base::Result<ChatPrompt> Chat::prompt(const Tokenizer& tokenizer, const ChatInput& input) const {
  const Parsed& chosen = input.tools && with_tools_ ? with_tools_ : default_;
  if (!chosen) {
    return base::fail(refused("messages", "no_chat_template",
                              "the model has no chat template, so it goes on with a text and does not answer: send "
                              "that as `prompt`, or with `llorch run`"));
  }
  if (!*chosen) return base::fail(chosen->error());
  jinja::RenderInput render;
  render.variables = TRY(variables_of(input));
  render.bos_token = bos_token_;
  render.eos_token = eos_token_;
  render.now = input.now;
  render.steps = input.template_steps;
  auto rendered = render_in_roles(**chosen, std::move(render));
  if (!rendered) return base::fail(refused("messages", "chat_template", std::move(rendered.error().message)));
  return ChatPrompt{.tokens = TRY(tokenizer.encode(rendered->runs, false, input.budget)), .text = rendered->text()};
}

}  // namespace llorch::text
