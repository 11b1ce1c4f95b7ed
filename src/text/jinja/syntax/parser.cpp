#include "text/jinja/syntax/parser.h"

#include <initializer_list>
#include <set>
#include <string>

#include "text/jinja/syntax/expressions.h"
#include "text/jinja/syntax/scopes.h"

namespace llorch::text::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : stream_(std::move(tokens)), expressions_(stream_) {}

  base::Result<Program> run() {
    Program program;
    program.body = TRY(block({}));
    return program;
  }

 private:
  using StmtPtr = std::unique_ptr<Stmt>;
  using Names = std::initializer_list<std::string_view>;

  StmtPtr make(StmtKind kind, int line) {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = line;
    return stmt;
  }

  bool at_end_tag(Names end_names) const {
    for (const std::string_view name : end_names) {
      if (stream_.current().is_name(name)) return true;
    }
    return false;
  }

  // Statements up to a tag that starts with one of `end_names`, which becomes the current token; up to the end of the
  // template when there are none.
  base::Result<Block> block(Names end_names) {
    const TokenStream::Level level(stream_);
    if (level.too_deep()) return base::fail(stream_.too_deep());
    Block body;
    for (;;) {
      const int line = stream_.line();
      switch (stream_.current().type) {
        case TokenType::kData:
          body.push_back(make(StmtKind::kText, line));
          body.back()->text = stream_.next().text;
          break;
        case TokenType::kVariableBegin:
          stream_.skip();
          body.push_back(make(StmtKind::kOutput, line));
          body.back()->expr = TRY(expressions_.tuple({}));
          TRY(stream_.expect_type(TokenType::kVariableEnd, "'}}'"));
          break;
        case TokenType::kBlockBegin:
          stream_.skip();
          if (at_end_tag(end_names)) return body;
          body.push_back(TRY(statement()));
          TRY(stream_.expect_type(TokenType::kBlockEnd, "'%}'"));
          break;
        default:
          if (end_names.size() == 0) return body;
          return base::fail(stream_.unexpected(fmt::format("'{}'", *(end_names.end() - 1))));
      }
    }
  }

  // The rest of an opening tag, then its body.
  base::Result<Block> tag_body(Names end_names) {
    stream_.skip_operator(":");
    TRY(stream_.expect_type(TokenType::kBlockEnd, "'%}'"));
    return block(end_names);
  }

  base::Result<StmtPtr> statement() {
    const int line = stream_.line();
    const std::string tag = TRY(stream_.expect_name("the name of a tag"));
    if (tag == "if") return if_statement(line);
    if (tag == "for") return for_statement(line);
    if (tag == "set") return set_statement(line);
    if (tag == "macro") return macro_statement(line);
    if (tag == "call") return call_statement(line);
    if (tag == "filter") return filter_statement(line);
    if (tag == "with") return with_statement(line);
    if (tag == "generation") return generation_statement(line);
    if (tag == "print") return print_statement(line);
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) return base::fail(syntax_error(line, fmt::format("'{}' outside of a loop", tag)));
      return make(tag == "break" ? StmtKind::kBreak : StmtKind::kContinue, line);
    }
    return base::fail(syntax_error(line, fmt::format("the tag '{}' is not supported", tag.substr(0, 40))));
  }

  base::Result<StmtPtr> if_statement(int line) {
    StmtPtr stmt = make(StmtKind::kIf, line);
    for (;;) {
      ExprPtr test = TRY(expressions_.tuple({.conditional = false}));
      stmt->branches.emplace_back(std::move(test), TRY(tag_body({"elif", "else", "endif"})));
      const std::string end = stream_.next().text;
      if (end == "elif") continue;
      if (end == "else") {
        stmt->else_body = TRY(tag_body({"endif"}));
        stream_.skip();
      }
      return stmt;
    }
  }

  base::Result<Target> target_of(const Expr& expr) {
    Target target;
    target.line = expr.line;
    if (expr.kind == ExprKind::kName) {
      target.name = expr.text;
      return target;
    }
    if (expr.kind != ExprKind::kTuple) return base::fail(syntax_error(expr.line, "this cannot be assigned to"));
    target.kind = Target::Kind::kTuple;
    for (const ExprPtr& item : expr.children) target.items.push_back(TRY(target_of(*item)));
    return target;
  }

  // Names with commas between them, up to `end_name` or whatever else follows.
  base::Result<Target> assign_target(std::string_view end_name = {}) {
    std::vector<Target> items;
    bool is_tuple = false;
    const int line = stream_.line();
    for (;;) {
      if (!items.empty()) TRY(stream_.expect_operator(","));
      const Token& token = stream_.current();
      if (token.type == TokenType::kBlockEnd || token.is_operator(")") ||
          (!end_name.empty() && token.is_name(end_name)))
        break;
      const ExprPtr expr = TRY(expressions_.primary());
      items.push_back(TRY(target_of(*expr)));
      if (!stream_.current().is_operator(",")) break;
      is_tuple = true;
    }
    if (items.empty()) return base::fail(stream_.unexpected("a name"));
    if (!is_tuple) return std::move(items[0]);
    Target target;
    target.kind = Target::Kind::kTuple;
    target.line = line;
    target.items = std::move(items);
    return target;
  }

  base::Result<StmtPtr> for_statement(int line) {
    StmtPtr stmt = make(StmtKind::kFor, line);
    stmt->loop = std::make_unique<LoopCode>();
    stmt->target = TRY(assign_target("in"));
    if (!stream_.skip_name("in")) return base::fail(stream_.unexpected("'in'"));
    stmt->expr = TRY(expressions_.tuple({.conditional = false, .end_name = "recursive"}));
    if (stream_.skip_name("if")) stmt->test = TRY(expressions_.expression());
    stmt->loop->recursive = stream_.skip_name("recursive");
    stmt->loop->test_target = stmt->target;
    const int outer_loops = loops_;
    loops_ = stmt->loop->recursive ? 1 : loops_ + 1;
    stmt->body = TRY(tag_body({"endfor", "else"}));
    loops_ = stmt->loop->recursive ? 0 : outer_loops;
    if (stream_.next().text == "else") {
      stmt->else_body = TRY(tag_body({"endfor"}));
      stream_.skip();
    }
    loops_ = outer_loops;
    return stmt;
  }

  base::Result<StmtPtr> set_statement(int line) {
    StmtPtr stmt = make(StmtKind::kSet, line);
    if (stream_.look().is_operator(".")) {
      stmt->target.kind = Target::Kind::kNamespaceAttribute;
      stmt->target.line = line;
      stmt->target.name = TRY(stream_.expect_name("a name"));
      stream_.skip();
      stmt->target.attribute = TRY(stream_.expect_name("the name of an attribute"));
    } else {
      stmt->target = TRY(assign_target());
    }
    if (stream_.skip_operator("=")) {
      stmt->expr = TRY(expressions_.tuple({}));
      return stmt;
    }
    stmt->kind = StmtKind::kSetBlock;
    stmt->expr = TRY(expressions_.filters(nullptr));
    stmt->body = TRY(tag_body({"endset"}));
    stream_.skip();
    return stmt;
  }

  base::Result<> signature(MacroCode& code) {
    TRY(stream_.expect_operator("("));
    std::set<std::string> names;
    while (!stream_.current().is_operator(")")) {
      if (!code.parameters.empty()) TRY(stream_.expect_operator(","));
      Parameter parameter;
      parameter.name = TRY(stream_.expect_name("the name of a parameter"));
      if (!names.insert(parameter.name).second) return base::fail(stream_.error("two parameters have one name"));
      if (stream_.skip_operator("="))
        parameter.default_value = TRY(expressions_.expression());
      else if (!code.parameters.empty() && code.parameters.back().default_value)
        return base::fail(stream_.error("a parameter without a default follows one with a default"));
      code.parameters.push_back(std::move(parameter));
    }
    return stream_.expect_operator(")");
  }

  base::Result<> function_body(Stmt& stmt, std::string_view end_name) {
    const int outer_loops = std::exchange(loops_, 0);
    stmt.macro->body = TRY(tag_body({end_name}));
    loops_ = outer_loops;
    stream_.skip();
    return {};
  }

  base::Result<StmtPtr> macro_statement(int line) {
    StmtPtr stmt = make(StmtKind::kMacro, line);
    stmt->macro = std::make_unique<MacroCode>();
    stmt->macro->name = TRY(stream_.expect_name("the name of a macro"));
    TRY(signature(*stmt->macro));
    TRY(function_body(*stmt, "endmacro"));
    return stmt;
  }

  base::Result<StmtPtr> call_statement(int line) {
    StmtPtr stmt = make(StmtKind::kCallBlock, line);
    stmt->macro = std::make_unique<MacroCode>();
    if (stream_.current().is_operator("(")) TRY(signature(*stmt->macro));
    stmt->expr = TRY(expressions_.expression());
    if (stmt->expr->kind != ExprKind::kCall) return base::fail(syntax_error(line, "the tag 'call' needs a call"));
    TRY(function_body(*stmt, "endcall"));
    return stmt;
  }

  base::Result<StmtPtr> generation_statement(int line) {
    StmtPtr stmt = make(StmtKind::kGeneration, line);
    stmt->macro = std::make_unique<MacroCode>();
    TRY(function_body(*stmt, "endgeneration"));
    return stmt;
  }

  base::Result<StmtPtr> filter_statement(int line) {
    StmtPtr stmt = make(StmtKind::kFilterBlock, line);
    stmt->expr = TRY(expressions_.filters(nullptr, true));
    stmt->body = TRY(tag_body({"endfilter"}));
    stream_.skip();
    return stmt;
  }

  base::Result<StmtPtr> with_statement(int line) {
    StmtPtr stmt = make(StmtKind::kWith, line);
    while (stream_.current().type != TokenType::kBlockEnd) {
      if (!stmt->bindings.empty()) TRY(stream_.expect_operator(","));
      Target target = TRY(assign_target());
      TRY(stream_.expect_operator("="));
      stmt->bindings.emplace_back(std::move(target), TRY(expressions_.expression()));
    }
    stmt->body = TRY(tag_body({"endwith"}));
    stream_.skip();
    return stmt;
  }

  base::Result<StmtPtr> print_statement(int line) {
    StmtPtr stmt = make(StmtKind::kOutput, line);
    auto pieces = std::make_unique<Expr>();
    pieces->kind = ExprKind::kConcat;
    pieces->line = line;
    while (stream_.current().type != TokenType::kBlockEnd) {
      if (!pieces->children.empty()) TRY(stream_.expect_operator(","));
      pieces->children.push_back(TRY(expressions_.expression()));
    }
    stmt->expr = std::move(pieces);
    return stmt;
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  int loops_ = 0;  // around the current statement, inside its function
};

}  // namespace

base::Result<std::shared_ptr<const Program>> parse_template(std::string_view source) {
  auto program = std::make_shared<Program>(TRY(Parser(TRY(tokenize(source))).run()));
  TRY(bind_names(*program));
  return std::shared_ptr<const Program>(std::move(program));
}

}  // namespace llorch::text::jinja
