#include "grammar/grammar.h"

#include <utility>

#include "grammar/frontend/gbnf.h"
#include "grammar/frontend/pattern.h"
#include "grammar/ir/builder.h"
#include "grammar/ir/compiler.h"
#include "grammar/json_schema/schema_compiler.h"

namespace llorch::grammar {

base::Result<std::shared_ptr<const Grammar>> Grammar::from_json_schema(std::string_view schema, const Limits& limits) {
  const json_schema::Document document = TRY(json_schema::Document::parse(schema, limits));
  ir::Builder builder(limits);
  const ir::RuleId root = TRY(json_schema::SchemaCompiler(document, builder).compile());
  auto rules = TRY(ir::compile(builder, root));
  return std::shared_ptr<const Grammar>(new Grammar(std::move(rules)));
}

base::Result<std::shared_ptr<const Grammar>> Grammar::from_regex(std::string_view expression, const Limits& limits) {
  const frontend::Pattern pattern = TRY(frontend::parse_pattern(expression, frontend::Match::kWhole, limits));
  ir::Builder builder(limits);
  const ir::RuleId root = builder.declare("the regular expression");
  builder.define(root, frontend::to_expr(builder, pattern, ir::Encoding::kUtf8));
  auto rules = TRY(ir::compile(builder, root));
  return std::shared_ptr<const Grammar>(new Grammar(std::move(rules)));
}

base::Result<std::shared_ptr<const Grammar>> Grammar::from_gbnf(std::string_view text, const Limits& limits) {
  ir::Builder builder(limits);
  const ir::RuleId root = TRY(frontend::read_gbnf(builder, text));
  auto rules = TRY(ir::compile(builder, root));
  return std::shared_ptr<const Grammar>(new Grammar(std::move(rules)));
}

std::span<const base::TokenId> Grammar::control_tokens() const { return rules_->control_tokens; }

}  // namespace llorch::grammar
