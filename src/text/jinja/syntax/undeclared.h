#pragma once
// Finds out which special names (loop, caller, kwargs, varargs) a body uses without assigning them first.
#include <algorithm>
#include <set>
#include <string>

#include "text/jinja/syntax/ast.h"

namespace llorch::text::jinja {

class UndeclaredNames {
 public:
  explicit UndeclaredNames(std::set<std::string> names) : wanted_(std::move(names)) {}

  void visit(const Block& block) {
    for (const auto& stmt : block) visit(*stmt);
  }
  bool uses(const std::string& name) const { return used_.contains(name); }

 private:
  void visit(const ExprPtr& expr) {
    if (!expr) return;
    if (expr->kind == ExprKind::kName && wanted_.contains(expr->text)) used_.insert(expr->text);
    for (const ExprPtr& child : expr->children) visit(child);
    if (!expr->arguments) return;
    for (const ExprPtr& argument : expr->arguments->positional) visit(argument);
    for (const auto& [name, argument] : expr->arguments->keyword) visit(argument);
    visit(expr->arguments->star);
    visit(expr->arguments->star_star);
  }
  void visit(const Target& target) {
    if (target.kind == Target::Kind::kName) wanted_.erase(target.name);
    for (const Target& item : target.items) visit(item);
  }
  void visit(const MacroCode& code) {
    for (const Parameter& parameter : code.parameters) wanted_.erase(parameter.name);
    for (const Parameter& parameter : code.parameters) visit(parameter.default_value);
    visit(code.body);
  }
  void visit(const Stmt& stmt) {
    visit(stmt.target);
    visit(stmt.expr);
    for (const auto& [target, value] : stmt.bindings) visit(target);
    for (const auto& [target, value] : stmt.bindings) visit(value);
    for (const auto& [test, body] : stmt.branches) {
      visit(test);
      visit(body);
    }
    if (stmt.macro) visit(*stmt.macro);
    visit(stmt.body);
    visit(stmt.else_body);
    visit(stmt.test);
  }

  std::set<std::string> wanted_, used_;
};

}  // namespace llorch::text::jinja
