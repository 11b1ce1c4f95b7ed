#include "orchestratord/http/tasks/constraint.h"

#include <fmt/format.h>

#include <utility>

#include "grammar/grammar.h"

namespace llorch::orchestratord::http::tasks {

using grammar::Grammar;
using grammar::Limits;

base::Result<> check_constraint(const wire::SamplingRequest& request, const models::KnownModel& model) {
  const auto check = [&model](const char* field, auto compile, const std::string& text) -> base::Result<> {
    auto compiled = compile(text, Limits{});
    if (!compiled) return base::fail(std::move(compiled.error()).with("field", std::string(field)));
    for (const base::TokenId token : (*compiled)->control_tokens()) {
      if (!model.format->marker(token).empty() || !model.format_with_tools->marker(token).empty()) continue;
      return base::fail(base::Error{
          base::ErrorCode::kInvalidParams,
          fmt::format("{} names token {}, which is no control token that the model's chat format uses; leave it out",
                      field, base::index(token)),
          {}}.with("field", std::string(field)));
    }
    return {};
  };
  if (request.json_schema) return check("json_schema", Grammar::from_json_schema, request.json_schema->text);
  if (request.regex) return check("regex", Grammar::from_regex, *request.regex);
  if (request.grammar) return check("grammar", Grammar::from_gbnf, *request.grammar);
  return {};
}

base::Result<std::string> calls_or_json(const wire::JsonSchema& schema, const text::formats::Tools& tools,
                                        text::formats::RequiredCall calls, const models::ChatFormat& format) {
  const auto refused = [](base::Error error) {
    return base::fail(std::move(error).with("field", std::string("json_schema")));
  };
  if (auto alone = Grammar::from_json_schema(schema.text); !alone) return refused(std::move(alone).error());
  calls.answer = schema.text == "true" ? "{}" : schema.text;
  auto strict = text::formats::required_call(format.format, tools, calls, format.markers);
  if (strict && Grammar::from_gbnf(*strict)) return *std::move(strict);
  // Which of the tools it was is not asked: each may take the whole budget of a compilation.
  for (const text::formats::Tool& tool : tools.all()) calls.loose.insert(tool.name);
  std::string loose = TRY(text::formats::required_call(format.format, tools, calls, format.markers));
  if (auto compiled = Grammar::from_gbnf(loose); !compiled) return refused(std::move(compiled).error());
  return loose;
}

}  // namespace llorch::orchestratord::http::tasks
