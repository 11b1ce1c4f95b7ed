#pragma once
// Random schedules against a naive model: sequences are lists of tokens in a map, slots and pages hold what was written to
// them. Knows the scheduler's promises, not how it keeps them.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/inference/paging/testing/page_contents.h"
#include "engine/inference/scheduling/scheduler.h"

namespace llorch::engine::inference::scheduling::testing {

// Mistakes made on purpose, so that the checks are seen to see them.
enum class Fault : std::uint8_t {
  kNone,
  kForgottenCopy,        // a forked slot's begun page is not copied
  kForgottenStart,       // a started slot keeps its state
  kUnfinishedPublished,  // a page gets its key before it is full
  kFailureUnreported,    // a step wrote rubbish and counts as done
  kPageKept,             // a slot is not released
  kHiddenPause,          // a sequence is held back and nobody knows
  kProposalKept,         // a slot stands behind proposals that were wrong
};

class Simulation {
 public:
  using Below = std::function<std::uint32_t(std::uint32_t)>;  // some number below n

  explicit Simulation(Below below, Fault fault = Fault::kNone);

  // Disorder for `steps` steps, unless the schedule is a calm one, then calm until every sequence has ended, within the
  // bound of scheduler.h. What is wrong, or nothing.
  std::string run(std::uint32_t steps);

  std::map<std::string, std::uint64_t> seen;  // how often the rare things happened

 private:
  struct Model {
    std::uint64_t order = 0;
    std::uint32_t text = 0;  // which of the texts it begins like
    std::vector<base::TokenId> tokens;
    std::vector<std::uint64_t> numbers;
    std::uint32_t target = 0;  // tokens when it ends
    bool shares = false;
    bool paused = false, awaits = false;
    bool ran = false;        // before the plan
    std::uint32_t rows = 0;  // in the plan
    std::optional<std::uint32_t>
        told;                 // of a prompt whose logits are wanted: tokens behind which they came, till all have
    bool tells = false;       // in the plan
    bool ends_known = false;  // with them all its tokens are computed
    std::vector<base::TokenId> proposals;   // in the plan, not drawn yet
    bool proposed = false;                  // its slot may stand behind them
    std::size_t held_before = 0;            // the step in which it did
    std::optional<std::uint32_t> slot;      // where its last rows ran, while it runs on
    std::optional<std::uint64_t> deadline;  // in steps; while all is calm
    bool may_run() const { return !paused && !awaits; }
  };
  using Slot = std::vector<std::uint64_t>;  // the numbers of the positions it holds, proposals included

  bool chance(std::uint32_t one_in) { return below_(one_in) == one_in - 1; }
  void fail(std::string what);
  std::vector<paging::PageGroup> some_groups();
  Model* pick();
  SequenceId id_of(const Model& model) const { return SequenceId{model.order}; }
  base::TokenId next_token(const Model& model);

  void step();
  void disturb();
  void add();
  void remove(std::uint64_t order);
  void set_deadline(Model& model);
  void calm_down();
  void answer();
  void answer(Model& model);
  bool draw(Model& model);
  void settle(Model& model);
  void check_plan(const StepPlan& plan);
  void check_order();
  void check_preempted(const Model& victim);
  bool decodes(const Model& model) const;
  void propose(const StepPlan& plan);
  void take_over(const StepPlan& plan);
  void run_rows(const StepPlan& plan, bool fails);
  void finish(const StepPlan& plan, bool fails);
  void publish_unfinished();
  void check_after();
  void check_end();

  Below below_;
  Fault fault_;
  bool calm_ = false;
  SchedulerOptions options_;
  std::unique_ptr<paging::PageTables> tables_;
  std::unique_ptr<paging::testing::PageContents> contents_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<std::uint64_t, Model> models_;  // by order, which is also the id
  std::vector<Slot> slots_;
  std::uint64_t next_order_ = 0;
  std::uint64_t steps_ = 0;
  std::uint32_t limit_ = 0;
  std::int64_t now_ms_ = 0;
  std::string wrong_;
};

}  // namespace llorch::engine::inference::scheduling::testing
