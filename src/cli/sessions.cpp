// session create, list, show, delete: what a client's jobs may still take.
#include <fmt/core.h>

#include "base/id.h"
#include "cli/commands.h"
#include "cli/terminal_text.h"
#include "wire/json.h"
#include "wire/session.h"

namespace llorch::cli {
namespace {

using wire::SessionView;

base::Result<std::string> call(const GlobalOptions& global, const std::string& method, const std::string& path,
                               const std::string& body = "") {
  auto api = TRY(Api::connect(global));
  return api->call(method, path, body);
}

base::Result<std::string> path_of(const std::string& session_id) {
  if (base::is_valid_identifier(session_id)) return "/v2/sessions/" + session_id;
  return base::fail(base::ErrorCode::kInvalidParams, "a session id is 1 to 256 characters of A-Z, a-z, 0-9, _ and -");
}

// "120 of 1000", or what was used where nothing limits it.
template <class T>
std::string left_of(const std::optional<T>& left, const std::optional<T>& budget, const T& used) {
  if (!left || !budget) return fmt::format("{} used", used);
  return fmt::format("{} of {}", *left, *budget);
}

int print(const GlobalOptions& global, const base::Result<std::string>& body) {
  if (!body) return report(body.error(), global.json);
  if (global.json) return fmt::print("{}\n", *body), kOk;
  const auto s = wire::decode<SessionView>(*body);
  if (!s) return report(s.error(), global.json);
  print_text(
      "session    {}\nturns      {} of {}, {} running\ntokens     {}\ntime (ms)  {}\ncost       {}\nends in    {} ms "
      "without a job\n",
      s->session_id, s->turns, s->turns_max, s->jobs_live,
      left_of(s->remaining.tokens_budget_remaining, s->token_budget, s->tokens_used),
      left_of(s->remaining.time_budget_remaining_ms, s->time_budget_ms, s->time_used_ms),
      left_of(s->remaining.cost_budget_remaining, s->cost_budget, s->cost_used), s->ttl_ms_remaining);
  if (s->worker_id) print_text("worker     {}\n", *s->worker_id);
  return kOk;
}

}  // namespace

int create_session(const GlobalOptions& global, const wire::CreateSessionRequest& request) {
  return print(global, call(global, "POST", "/v2/sessions", wire::encode(request)));
}

int list_sessions(const GlobalOptions& global) {
  const auto body = call(global, "GET", "/v2/sessions");
  if (!body) return report(body.error(), global.json);
  if (global.json) return fmt::print("{}\n", *body), kOk;
  const auto list = wire::decode<wire::SessionList>(*body);
  if (!list) return report(list.error(), global.json);
  std::vector<std::vector<std::string>> rows;
  for (const SessionView& s : list->sessions) {
    rows.push_back({s.session_id, fmt::format("{}/{}", s.turns, s.turns_max), std::to_string(s.jobs_live),
                    left_of(s.remaining.tokens_budget_remaining, s.token_budget, s.tokens_used),
                    left_of(s.remaining.time_budget_remaining_ms, s.time_budget_ms, s.time_used_ms),
                    left_of(s.remaining.cost_budget_remaining, s.cost_budget, s.cost_used),
                    std::to_string(s.ttl_ms_remaining)});
  }
  print_table({"SESSION", "TURNS", "RUNNING", "TOKENS", "TIME", "COST", "ENDS IN"}, rows);
  return kOk;
}

int show_session(const GlobalOptions& global, const std::string& session_id) {
  const auto path = path_of(session_id);
  if (!path) return report(path.error(), global.json);
  return print(global, call(global, "GET", *path));
}

int delete_session(const GlobalOptions& global, const std::string& session_id) {
  const auto path = path_of(session_id);
  if (!path) return report(path.error(), global.json);
  const auto body = call(global, "DELETE", *path);
  if (!body) return report(body.error(), global.json);
  if (global.json) return fmt::print("{}\n", *body), kOk;
  print_text("{}: deleted\n", session_id);
  return kOk;
}

}  // namespace llorch::cli
