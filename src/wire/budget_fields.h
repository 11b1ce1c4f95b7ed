#pragma once
// The field table of BudgetRemaining, for the messages that carry it. Included only by the .cpp files of this directory.
#include "wire/field.h"
#include "wire/session.h"

namespace llorch::wire {

template <>
struct Table<BudgetRemaining> {
  using S = BudgetRemaining;
  static Fields fields() {
    return {optional("tokens_budget_remaining", &S::tokens_budget_remaining, "Of the session, for its next job."),
            optional("time_budget_remaining_ms", &S::time_budget_remaining_ms),
            optional("cost_budget_remaining", &S::cost_budget_remaining)};
  }
};

}  // namespace llorch::wire
