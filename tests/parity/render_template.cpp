// Renders cases for the scripts that compare with Jinja2.
// Input, one JSON object per line: {"template", "context", "now"?}. Output, one per line: {"text", "runs": [[text, is_data]]}
// or {"error"}.
#include <boost/json.hpp>

#include <chrono>
#include <iostream>
#include <string>

#include "text/jinja/chat_template.h"

namespace {

namespace json = boost::json;
using namespace llorch::text;

json::object render(const json::object& request) {
  const auto parsed = jinja::ChatTemplate::parse(request.at("template").as_string());
  if (!parsed) return {{"error", parsed.error().message}};
  jinja::RenderInput input;
  input.variables = request.at("context").as_object();
  for (const auto& [name, token] :
       {std::pair{"bos_token", &input.bos_token}, std::pair{"eos_token", &input.eos_token}}) {
    if (const json::value* given = input.variables.if_contains(name)) *token = std::string(given->as_string());
  }
  if (const json::value* now = request.if_contains("now"))
    input.now = std::chrono::sys_seconds(std::chrono::seconds(now->as_int64()));
  const auto rendered = parsed->render(input);
  if (!rendered) return {{"error", rendered.error().message}};
  json::array runs;
  for (const TextRun& run : rendered->runs) runs.push_back(json::array{run.text, run.origin == jinja::Origin::kData});
  return {{"text", rendered->text()}, {"runs", std::move(runs)}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << json::serialize(render(json::parse(line).as_object())) << std::endl;
}
