#include "engine/inference/scheduling/testing/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "engine/inference/paging/prefix_keys.h"

namespace llorch::engine::inference::scheduling::testing {

using base::TokenId;
using paging::testing::extend_numbers;
using paging::testing::PageContents;
using plan::kPageTokens;

namespace {
constexpr std::string_view kSalt = "salt";
constexpr std::int64_t kTtlMs = 100;
constexpr std::uint32_t kSequencesMax = 7;
// Far above any bound: what goes on for longer never ends.
constexpr std::uint64_t kStepsMax = 20'000;
}  // namespace

Simulation::Simulation(Below below, Fault fault) : below_(std::move(below)), fault_(fault) {
  const bool faulty = fault != Fault::kNone;
  const std::uint32_t slots = 1 + below_(6) + faulty;
  options_ = {.slots = slots,
              .rows_max = slots + below_(120),
              .outputs_max = chance(2) ? 0 : slots + below_(40),
              .prefill_chunk = 1 + below_(100),
              .context_tokens = kPageTokens * (1 + below_(4) + faulty) + below_(kPageTokens),
              .cache_prefixes = faulty || !chance(5),
              .cache_ttl_ms = kTtlMs};
  options_.rewinds_whole_steps = !options_.cache_prefixes && chance(2);
  limit_ = slots;
  calm_ = !faulty && chance(3);
  tables_ = std::make_unique<paging::PageTables>(
      paging::PageTablesOptions{.groups = some_groups(), .slots = slots, .context_tokens = options_.context_tokens});
  contents_ = std::make_unique<PageContents>(*tables_);
  scheduler_ = std::make_unique<Scheduler>(options_, *tables_);
  slots_.resize(slots);
}

// From what one sequence needs to what all slots can fill.
std::vector<paging::PageGroup> Simulation::some_groups() {
  std::vector<std::uint32_t> windows = {0};
  switch (below_(6)) {
    case 0: windows = {1 + below_(3 * kPageTokens)}; break;
    case 1:
    case 2: windows.push_back(1 + below_(3 * kPageTokens)); break;
    case 3:
      if (fault_ == Fault::kNone) windows.clear();
      break;
    default: break;
  }
  std::vector<paging::PageGroup> groups;
  for (const std::uint32_t window : windows) {
    paging::PageGroup group{.window_tokens = window};
    const std::uint32_t least =
        group.pages_at_once({.tokens = options_.context_tokens, .rows_max = options_.prefill_chunk});
    group.pages_total = least + below_(least * options_.slots / 2 + 1);
    groups.push_back(group);
  }
  return groups;
}

void Simulation::fail(std::string what) {
  if (wrong_.empty()) wrong_ = fmt::format("step {}: {}", steps_, what);
}

std::string Simulation::run(std::uint32_t steps) {
  for (std::uint32_t i = 0; i < steps && wrong_.empty(); ++i) {
    disturb();
    step();
  }
  if (!calm_) calm_down();
  for (std::uint32_t late = 2; wrong_.empty() && !models_.empty();) {
    if (late > 0 && chance(8)) add(), --late;
    step();
    if (steps_ > kStepsMax) fail("does not end");
  }
  if (wrong_.empty()) check_end();
  return wrong_;
}

// Three texts, so that requests begin alike; some part on the way.
TokenId Simulation::next_token(const Model& model) {
  const auto place = static_cast<std::uint32_t>(model.tokens.size());
  return TokenId{chance(150) ? 5000 + below_(2) : 1000 * model.text + place};
}

Simulation::Model* Simulation::pick() {
  if (models_.empty()) return nullptr;
  return &std::next(models_.begin(), below_(static_cast<std::uint32_t>(models_.size())))->second;
}

void Simulation::disturb() {
  if (models_.size() < kSequencesMax && chance(3)) add();
  if (chance(12)) {
    if (Model* model = pick()) remove(model->order);
  }
  if (chance(60)) tables_->clear_cache();
  if (chance(40) && tables_->groups_count() > 0) tables_->grow(0, 1);
  now_ms_ += chance(20) ? 2 * kTtlMs : 1;
  if (calm_) return;
  if (chance(5)) {
    if (Model* model = pick()) {
      model->paused = !model->paused;
      scheduler_->set_paused(id_of(*model), model->paused);
    }
  }
  if (chance(15)) scheduler_->limit_running(limit_ = 1 + below_(options_.slots));
  if (fault_ == Fault::kUnfinishedPublished) publish_unfinished();
  if (fault_ == Fault::kHiddenPause && !models_.empty()) scheduler_->set_paused(id_of(models_.begin()->second), true);
}

void Simulation::add() {
  const std::uint64_t order = next_order_++;
  Model model{.order = order, .text = below_(3)};
  const std::uint32_t prompt = 1 + below_(options_.context_tokens);
  while (model.tokens.size() < prompt) model.tokens.push_back(next_token(model));
  model.target = std::min(options_.context_tokens, prompt + below_(chance(4) ? 100 : 12));
  model.shares = options_.cache_prefixes && !chance(6);
  if (chance(4)) model.told = 0;
  extend_numbers(model.numbers, model.tokens);
  scheduler_->add({.id = id_of(model),
                   .prompt = model.tokens,
                   .tokens_max = model.target,
                   .cache_salt = model.shares ? std::as_bytes(std::span(kSalt)) : std::span<const std::byte>{},
                   .wants_prompt = model.told.has_value()});
  if (scheduler_->is_running(id_of(model))) fail("runs before a plan says so");
  Model& placed = models_[order] = std::move(model);
  if (calm_) set_deadline(placed);
}

void Simulation::remove(std::uint64_t order) {
  scheduler_->remove(SequenceId{order});
  scheduler_->remove(SequenceId{order});
  if (scheduler_->knows(SequenceId{order})) fail("is still known");
  models_.erase(order);
}

// The bound of scheduler.h.
void Simulation::set_deadline(Model& model) {
  model.deadline = steps_;
  for (const auto& [order, other] : models_) {
    if (order <= model.order || scheduler_->is_running(SequenceId{order})) *model.deadline += other.target;
  }
}

void Simulation::calm_down() {
  calm_ = true;
  scheduler_->limit_running(limit_ = options_.slots);
  for (auto& [order, model] : models_) {
    if (std::exchange(model.paused, false)) scheduler_->set_paused(SequenceId{order}, false);
  }
  answer();
  for (auto& [order, model] : models_) set_deadline(model);
}

void Simulation::step() {
  if (!wrong_.empty()) return;
  for (auto& [order, model] : models_) {
    model.ran = scheduler_->is_running(SequenceId{order});
    model.rows = 0;
    if (!model.ran) model.slot.reset();
  }
  const std::uint64_t preempted_before = scheduler_->counts().preemptions;
  const StepPlan& plan = scheduler_->plan(now_ms_);
  seen["preemption"] += scheduler_->counts().preemptions - preempted_before;
  check_plan(plan);
  if (!wrong_.empty()) return;
  check_order();
  propose(plan);
  take_over(plan);
  const bool fails = !calm_ && chance(fault_ == Fault::kFailureUnreported ? 4 : 25);
  run_rows(plan, fails);
  if (!calm_ && chance(20)) {
    if (Model* model = pick()) {
      seen["removal during a step"] += model->rows > 0;
      remove(model->order);
    }
  }
  finish(plan, fails && fault_ != Fault::kFailureUnreported);
  check_after();
  answer();
}

void Simulation::finish(const StepPlan& plan, bool fails) {
  const bool ran = !plan.rows.empty();
  if (fails) {
    ++seen["failure"];
    scheduler_->failed();
  } else {
    scheduler_->done();
    steps_ += ran;
  }
  for (auto& [order, model] : models_) {
    if (model.rows == 0) continue;
    if (fails && scheduler_->is_running(SequenceId{order})) fail("runs on after its step failed");
    model.awaits = !fails && model.ends_known;
    if (std::exchange(model.tells, false) && !fails) {
      *model.told += model.rows;
      seen["prompt told"] += model.rows;
    }
    if (model.told && model.awaits && *model.told != model.tokens.size()) fail("logits of a prompt did not come");
    if (model.awaits) model.told.reset();
    if (fails) model.proposals.clear(), model.proposed = false;
  }
}

// What does not depend on who came first.
void Simulation::check_plan(const StepPlan& plan) {
  std::uint32_t rows = 0;
  std::int64_t last_slot = -1;
  std::set<std::uint32_t> with_rows;
  for (const PlannedRows& r : plan.rows) {
    const auto found = models_.find(static_cast<std::uint64_t>(r.id));
    if (found == models_.end()) return fail("rows of nobody");
    Model& model = found->second;
    if (!model.may_run()) return fail("rows of one that is paused or awaits its token");
    if (model.rows > 0) return fail("rows twice");
    if (r.slot >= options_.slots || static_cast<std::int64_t>(r.slot) <= last_slot) return fail("slots out of order");
    if (r.tokens.empty() || r.tokens.size() > options_.prefill_chunk) return fail("a wrong number of rows");
    if (!scheduler_->is_running(r.id)) return fail("rows without a slot");
    last_slot = r.slot;
    model.rows = static_cast<std::uint32_t>(r.tokens.size());
    rows += model.rows;
    with_rows.insert(r.slot);
  }
  if (rows > options_.rows_max) return fail("more rows than the budget");
  for (const SlotStart& start : plan.starts) {
    if (!with_rows.contains(start.slot)) return fail("a start without rows");
  }
  if (scheduler_->running_count() + scheduler_->waiting_count() != models_.size()) return fail("somebody is lost");
  if (scheduler_->running_count() > limit_) return fail("more run than may");
  std::uint32_t running = 0;
  for (const auto& [order, model] : models_) running += scheduler_->is_running(SequenceId{order});
  if (running != scheduler_->running_count()) return fail("a slot of nobody");
}

// Who goes first: decode before prompts, the oldest before all, the youngest gives way, arrivals in order.
void Simulation::check_order() {
  bool oldest = true, awaited = false, waits = false, some_may_run = false;
  std::uint32_t rows = 0;
  for (const auto& [order, model] : models_) {
    const bool runs = scheduler_->is_running(SequenceId{order});
    rows += model.rows;
    some_may_run |= model.may_run();
    awaited |= runs && model.awaits;
    if (model.ran && !runs) check_preempted(model);
    if (model.ran && !model.paused && std::exchange(oldest, false)) {
      if (!runs) fail("the oldest was preempted");
      if (!model.awaits && model.rows == 0) fail("the oldest has no rows");
    }
    if (decodes(model) && model.rows == 0) fail("a prompt went before a decode");
    if (!model.ran && model.rows > 0 && waits) fail("started before one that came earlier");
    waits |= !runs && model.may_run();
  }
  if (some_may_run && rows == 0 && !awaited) fail("nobody gets on");
}

// Runs on and has one position to compute.
bool Simulation::decodes(const Model& model) const {
  return model.ran && model.may_run() && model.slot && scheduler_->is_running(id_of(model)) &&
         slots_[*model.slot].size() + 1 == model.tokens.size();
}

void Simulation::check_preempted(const Model& victim) {
  if (victim.paused) return;
  for (const auto& [order, model] : models_) {
    if (!model.ran || !scheduler_->is_running(SequenceId{order})) continue;
    if (model.paused) fail("preempted before one that is paused");
    if (order > victim.order) fail("preempted before one that is younger");
  }
}

// Some of the tokens that will come, and others.
void Simulation::propose(const StepPlan& plan) {
  std::uint32_t left = options_.rows_max;
  for (const PlannedRows& r : plan.rows) left -= static_cast<std::uint32_t>(r.tokens.size());
  const std::uint32_t running = scheduler_->running_count();
  for (const PlannedRows& r : plan.rows) {
    if (!r.wants_logits || r.wants_all || chance(2)) continue;
    Model ahead = models_.at(static_cast<std::uint64_t>(r.id));
    std::vector<TokenId> proposals;
    for (std::uint32_t n = 1 + below_(chance(8) ? 80 : 6); n > 0; --n) {
      proposals.push_back(chance(6) ? TokenId{6000} : next_token(ahead));
      ahead.tokens.push_back(proposals.back());
    }
    const std::size_t rows = r.tokens.size();
    const std::uint32_t taken = scheduler_->propose(r.id, proposals);
    Model& model = models_.at(static_cast<std::uint64_t>(r.id));
    if (taken > std::min<std::size_t>(left, proposals.size())) return fail("more proposals than rows are left");
    if (rows + taken > options_.prefill_chunk) return fail("more rows than a chunk");
    if (r.proposals != taken || r.tokens.size() != rows + taken) return fail("proposals without rows");
    if (taken > 0 && model.tokens.size() + taken >= model.target) return fail("proposals behind the end");
    left -= taken;
    proposals.resize(taken);
    model.proposed = taken > 0;
    model.proposals = std::move(proposals);
    seen["proposal"] += taken;
  }
  if (scheduler_->running_count() != running) fail("somebody was preempted for a proposal");
}

// Forks, copies and starts, as an engine does them.
void Simulation::take_over(const StepPlan& plan) {
  for (const SlotFork& fork : plan.forks) {
    slots_[fork.to] = slots_[fork.from];
    ++seen["fork taken over"];
  }
  if (fault_ != Fault::kForgottenCopy) contents_->copy(plan.page_copies);
  seen["page copied"] += plan.page_copies.size();
  for (const SlotStart& start : plan.starts) {
    const auto rows = std::ranges::find(plan.rows, start.slot, &PlannedRows::slot);
    const Model& model = models_.at(static_cast<std::uint64_t>(rows->id));
    if (start.tokens_max != model.target) fail("a start with another limit");
    if (start.held % kPageTokens != 0 || start.held >= model.tokens.size()) {
      return fail(fmt::format("{} of {} positions held", start.held, model.tokens.size()));
    }
    if (start.held > 0 && !model.shares) fail("shares what it must not");
    if (start.held > model.told.value_or(start.held)) fail("takes over rows whose logits are wanted");
    seen["prompt told from the middle"] += start.held > 0 && model.told;
    seen["prefix found"] += start.held > 0;
    if (fault_ == Fault::kForgottenStart) continue;
    slots_[start.slot].assign(model.numbers.begin(), model.numbers.begin() + start.held);
  }
}

void Simulation::run_rows(const StepPlan& plan, bool fails) {
  std::size_t outputs = 0;
  for (const PlannedRows& r : plan.rows) {
    outputs += r.wants_all ? r.tokens.size() : r.wants_logits + std::size_t{r.proposals};
    Model& model = models_.at(static_cast<std::uint64_t>(r.id));
    Slot& slot = slots_[r.slot];
    const std::size_t held = slot.size(), end = held + r.tokens.size() - r.proposals;
    if (end > model.tokens.size() || !std::equal(slot.begin(), slot.end(), model.numbers.begin()) ||
        !std::equal(r.tokens.begin(), r.tokens.end() - r.proposals,
                    model.tokens.begin() + static_cast<std::ptrdiff_t>(held)) ||
        !std::equal(r.tokens.end() - r.proposals, r.tokens.end(), model.proposals.begin(), model.proposals.end())) {
      return fail(fmt::format("slot {} stands at {}, its rows go on elsewhere", r.slot, held));
    }
    if (r.wants_all != (model.told && held == *model.told)) fail("logits of a prompt out of order");
    if (model.told && !r.wants_all && end > *model.told) fail("logits of a prompt are passed over");
    model.tells = r.wants_all;
    model.slot = r.slot;
    model.ends_known = end == model.tokens.size();
    if (r.wants_logits != model.ends_known) fail("logits at another row than the last");
    slot.assign(model.numbers.begin(), model.numbers.begin() + static_cast<std::ptrdiff_t>(end));
    model.held_before = held;
    std::vector<TokenId> with_proposals = model.tokens;
    with_proposals.insert(with_proposals.end(), model.proposals.begin(), model.proposals.end());
    if (r.proposals > 0) extend_numbers(slot, with_proposals);
    if (fails) {  // what it wrote before it failed is anything
      for (std::size_t i = held; i < slot.size(); ++i) slot[i] = ~slot[i];
    }
    if (std::string wrong = contents_->run(r.slot, static_cast<std::uint32_t>(held), slot); !wrong.empty()) fail(wrong);
  }
  if (options_.outputs_max > 0 && outputs > options_.outputs_max) fail("more outputs than there is room for");
}

void Simulation::answer() {
  for (auto next = models_.begin(); next != models_.end();) {
    Model& model = next->second;
    if (model.awaits != scheduler_->awaits_token(id_of(model))) return fail("awaits a token, or not");
    const auto ends = [&] { return model.awaits && model.tokens.size() == model.target; };
    if (!ends() && model.awaits) answer(model);
    ++next;  // a child that came with the answer is still ahead
    if (!wrong_.empty()) return;
    if (ends()) {
      remove(model.order);
      ++seen["end"];
    }
  }
}

// Draws tokens from the logits that came, as long as they are the proposals.
void Simulation::answer(Model& model) {
  while (model.awaits && model.tokens.size() < model.target && draw(model)) {
    if (model.awaits != scheduler_->awaits_token(id_of(model))) return fail("awaits a token behind a proposal, or not");
  }
  if (model.tokens.size() < model.target) settle(model);
}

// After forks. Out of calm some answers come late.
bool Simulation::draw(Model& model) {
  if (models_.size() < kSequencesMax && chance(40)) {
    Model child = model;
    child.order = next_order_++;
    child.paused = child.ran = child.proposed = false;
    child.rows = 0;
    child.proposals.clear();
    child.slot.reset();
    scheduler_->fork(id_of(model), id_of(child));
    seen["fork with proposals left"] += !model.proposals.empty();
    Model& placed = models_[child.order] = std::move(child);
    if (calm_) set_deadline(placed);
    ++seen["fork"];
    settle(model);
  }
  if (!calm_ && chance(3)) return false;
  model.tokens.push_back(next_token(model));
  extend_numbers(model.numbers, model.tokens);
  model.awaits = !model.proposals.empty() && model.proposals.front() == model.tokens.back();
  if (model.awaits) model.proposals.erase(model.proposals.begin());
  scheduler_->append(id_of(model), model.tokens.back());
  seen["proposal right"] += model.awaits;
  return true;
}

// The slot goes back to what is known to be right of it, or to where the step began.
void Simulation::settle(Model& model) {
  if (!std::exchange(model.proposed, false) || fault_ == Fault::kProposalKept) return;
  Slot& slot = slots_[*model.slot];
  const std::size_t right = slot.size() - model.proposals.size();
  const bool back = !model.proposals.empty() && options_.rewinds_whole_steps;
  if (scheduler_->settle(id_of(model)) != (back ? model.held_before : right)) fail("settles elsewhere");
  slot.resize(back ? model.held_before : right);
  seen["proposal wrong"] += model.proposals.size();
  model.proposals.clear();
}

void Simulation::check_after() {
  if (std::string wrong = PageContents::check_counts(*tables_, options_.slots); !wrong.empty()) fail(wrong);
  for (std::uint32_t g = 0; g < tables_->groups_count(); ++g) {
    std::uint32_t slots = 0;
    for (std::uint32_t slot = 0; slot < options_.slots; ++slot) slots += tables_->pages_held(g, slot) > 0;
    if (slots > scheduler_->running_count()) fail("pages of a slot that nobody runs in");
  }
  for (const auto& [order, model] : models_) {
    if (calm_ && model.deadline && steps_ > *model.deadline) fail(fmt::format("{} waits past its bound", order));
  }
}

void Simulation::check_end() {
  if (scheduler_->running_count() + scheduler_->waiting_count() > 0) fail("runs on");
  if (fault_ == Fault::kPageKept && !tables_->reserve(0, 0, 1)) return;
  for (std::uint32_t g = 0; g < tables_->groups_count(); ++g) {
    if (tables_->counts(g).used > 0) fail("pages of nobody");
    tables_->clear_cache();
    if (tables_->counts(g).free() != tables_->counts(g).total) fail("pages are lost");
  }
}

// What a scheduler would do that counted a begun page as full; the sequence ends, and the next one like it finds the page.
void Simulation::publish_unfinished() {
  for (const auto& [order, model] : models_) {
    if (!model.shares || !model.slot || !scheduler_->is_running(SequenceId{order})) continue;
    const auto page = static_cast<std::uint32_t>(slots_[*model.slot].size() / kPageTokens);
    paging::PrefixKeys keys(std::as_bytes(std::span(kSalt)));
    keys.extend(model.tokens);
    if (page >= keys.keys().size() || tables_->row(0, *model.slot)[page] == paging::kNoPage) continue;
    tables_->publish(*model.slot, page, keys.keys()[page], now_ms_);
    return remove(order);
  }
}

}  // namespace llorch::engine::inference::scheduling::testing
