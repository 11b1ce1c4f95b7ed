#include "wire/session.h"

#include "base/id.h"
#include "wire/budget_fields.h"

namespace llorch::wire {

template <>
struct EnumNames<ContextMode> {
  static constexpr auto names = std::array{std::pair{ContextMode::kStateless, std::string_view("stateless")}};
};

template <>
struct Table<CreateSessionRequest> {
  using S = CreateSessionRequest;
  static Fields fields() {
    return {optional("session_id", &S::session_id, "Omitted: one is drawn.", {1, 256}),
            optional("token_budget", &S::token_budget, "Prompt and generated tokens of all its jobs.", {1, 1e12}),
            optional("time_budget_ms", &S::time_budget_ms, "Decode time of all its jobs.", {1, 1e12}),
            optional("cost_budget", &S::cost_budget, "Cost of all its jobs.", {0.000001, 1e6}),
            optional("context_mode", &S::context_mode, "Every request brings its whole context.")};
  }

  static base::Result<> validate(const S& r) {
    if (!r.session_id || base::is_valid_identifier(*r.session_id)) return {};
    return field_error("session_id", "charset", "ids are 1 to 256 characters of A-Z, a-z, 0-9, _ and -");
  }
};
template <>
struct Table<SessionView> {
  using S = SessionView;
  static Fields own() {
    return {
        required("session_id", &S::session_id),
        required("context_mode", &S::context_mode),
        required("created_at", &S::created_at),
        required("last_activity", &S::last_activity),
        required("ttl_ms_remaining", &S::ttl_ms_remaining, "Starts again with every job and touch."),
        required("turns", &S::turns),
        required("turns_max", &S::turns_max),
        required("jobs_total", &S::jobs_total),
        required("jobs_live", &S::jobs_live, "Accepted and not ended."),
        optional("token_budget", &S::token_budget),
        required("tokens_used", &S::tokens_used, "Prompt and generated tokens of ended jobs."),
        required("tokens_reserved", &S::tokens_reserved, "Of live jobs: prompt and max_tokens."),
        optional("tokens_remaining", &S::tokens_remaining),
        optional("time_budget_ms", &S::time_budget_ms),
        required("time_used_ms", &S::time_used_ms),
        optional("cost_budget", &S::cost_budget),
        required("cost_used", &S::cost_used),
        required("kv_warmth", &S::kv_warmth, "Its last job ended on a worker that still runs and may hold its prefix."),
        optional("worker_id", &S::worker_id, "That worker.")};
  }
  static Fields fields() { return joined({own(), fields_of(&S::remaining, Table<BudgetRemaining>::fields())}); }
};
template <>
struct Table<SessionList> {
  static Fields fields() { return {required("sessions", &SessionList::sessions)}; }
};
template <>
struct Table<SessionDeleted> {
  using S = SessionDeleted;
  static Fields fields() { return {required("session_id", &S::session_id), required("deleted", &S::deleted)}; }
};

}  // namespace llorch::wire

using namespace llorch::wire;
LLORCH_INSTANTIATE_WIRE(CreateSessionRequest)
LLORCH_INSTANTIATE_WIRE(SessionView)
LLORCH_INSTANTIATE_WIRE(SessionList)
LLORCH_INSTANTIATE_WIRE(SessionDeleted)
LLORCH_INSTANTIATE_ENUM(ContextMode)
