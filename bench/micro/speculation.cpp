// Decoding with tokens computed ahead against decoding without, in turn, round by round on one machine: CPU seconds and wall
// seconds of the same answers, which must be the same. Workloads: an edit of a text (the answer repeats the prompt with a few
// changes), random text (nothing to look up), what the model says by itself; with a draft model, a text of which three quarters of
// the tokens are the draft's own choice (what a draft of the same family agrees on), and random text.
// Of each workload also the round that spent the largest part of its CPU seconds on the draft, and how many proposals came to
// nothing in one round: what a round may lose, whatever the clock did meanwhile. Before them what a step costs by its rows.
// Usage: speculation_bench MODEL [DRAFT] [--rounds N] [--threads N] [--tokens N] [--only rows|edit|random|greedy|agreed|drafted].
// Release build. One JSON line per workload, and per number of rows.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/compute/cpu/backend.h"
#include "engine/inference/continuous_batch.h"
#include "engine/inference/speculation/draft_model.h"
#include "median.h"

namespace {

using namespace llorch;
using base::TokenId;
using bench::median;
using engine::inference::ContinuousBatch;
using engine::inference::Engine;
using engine::inference::SequenceId;
using engine::inference::speculation::DraftModel;
using engine::inference::speculation::ProposalSource;
using engine::inference::speculation::SpeculationOptions;

constexpr std::uint32_t kContext = 1024;
constexpr std::uint32_t kProposalsMax = 8;

double cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Whoever draws the tokens: a text that is written whatever the logits are, or the largest logit.
struct Workload {
  std::string name;
  std::vector<TokenId> prompt;
  std::vector<TokenId> answer;  // empty: greedy
};

struct Cost {
  double cpu = 0, wall = 0;
  std::uint64_t steps = 0, proposed = 0, accepted = 0;
  std::vector<TokenId> tokens;
};

TokenId largest(std::span<const float> logits) {
  return TokenId{static_cast<std::uint32_t>(std::ranges::max_element(logits) - logits.begin())};
}

void must(const auto& result) {
  if (result) return;
  fmt::print(stderr, "{}\n", result.error().message);
  std::exit(1);
}

// Decoding alone is timed: from the first token drawn to the last.
Cost run(ContinuousBatch& batch, SequenceId id, const Workload& work, std::uint32_t tokens) {
  const auto total = static_cast<std::uint32_t>(work.prompt.size()) + tokens;
  must(batch.add({.id = id, .prompt = work.prompt, .tokens_max = total}));
  Cost cost;
  const auto sink = [&](SequenceId, std::span<const float> logits) {
    const TokenId token = work.answer.empty() ? largest(logits) : work.answer[cost.tokens.size()];
    if (cost.tokens.empty()) cost.cpu = -cpu_seconds(), cost.wall = -wall_seconds();
    cost.tokens.push_back(token);
    if (cost.tokens.size() < tokens) return batch.append(id, token);
    cost.cpu += cpu_seconds();
    cost.wall += wall_seconds();
    const auto counts = batch.proposals(id);
    cost.proposed = counts.proposed;
    cost.accepted = counts.accepted;
    batch.remove(id);
  };
  while (cost.tokens.size() < tokens) {
    must(batch.step(0, sink));
    ++cost.steps;
  }
  return cost;
}

// A source whose CPU seconds are counted.
class Counted final : public ProposalSource {
 public:
  explicit Counted(ProposalSource& source) : source_(source) {}
  bool propose(std::span<Request> requests) override {
    const double began = cpu_seconds();
    const bool steady = source_.propose(requests);
    spent += cpu_seconds() - began;
    return steady;
  }
  std::uint32_t behind(SequenceId id, std::uint32_t known) const override { return source_.behind(id, known); }
  void remove(SequenceId id) override { source_.remove(id); }
  double spent = 0;

 private:
  ProposalSource& source_;
};

// Code that is written again with every eleventh token changed, and text without any order.
std::vector<Workload> workloads(std::uint32_t vocab, std::uint32_t tokens) {
  std::uint64_t state = 42;
  const auto random = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return TokenId{static_cast<std::uint32_t>((state >> 33) % vocab)};
  };
  Workload edit{.name = "edit", .prompt = {}, .answer = {}}, chance{.name = "random", .prompt = {}, .answer = {}};
  for (std::uint32_t i = 0; i < tokens; ++i) {
    edit.prompt.push_back(random());
    edit.answer.push_back(i % 24 == 11 ? random() : edit.prompt.back());
    chance.answer.push_back(random());
  }
  for (std::uint32_t i = 0; i < 64; ++i) chance.prompt.push_back(random());
  edit.prompt.push_back(TokenId{1});
  edit.prompt.push_back(edit.prompt[0]), edit.prompt.push_back(edit.prompt[1]);
  edit.answer.erase(edit.answer.begin(), edit.answer.begin() + 2);
  edit.answer.push_back(random()), edit.answer.push_back(random());
  return {edit, chance};
}

// As the draft would write it, but for every fourth token or so.
std::vector<TokenId> agreed_text(Engine& draft, std::span<const TokenId> prompt, std::uint32_t tokens) {
  std::uint64_t state = 7;
  std::vector<TokenId> text;
  must(draft.reset(0));
  auto logits = draft.prefill(0, prompt);
  while (text.size() < tokens) {
    must(logits);
    state = state * 6364136223846793005u + 1442695040888963407u;
    const bool agrees = (state >> 33) % 100 < 75;
    text.push_back(agrees ? largest(*logits)
                          : TokenId{static_cast<std::uint32_t>((state >> 40) % draft.facts().vocab)});
    logits = draft.decode(0, text.back());
  }
  must(draft.reset(0));
  return text;
}

void compare(Engine& engine, const Workload& work, std::uint32_t tokens, const SpeculationOptions& speculation,
             int rounds, Counted* source = nullptr) {
  std::vector<double> cpu, wall;
  double draft_share = 0;
  std::uint64_t wasted = 0;
  Cost with, without;
  // A worker's batch outlives its answers, and learns from them.
  ContinuousBatch without_speculation(engine, {}), with_speculation(engine, {.speculation = speculation});
  for (int round = 0; round < rounds; ++round) {
    const SequenceId id{static_cast<std::uint64_t>(round) + 1};
    const auto plain = [&] { without = run(without_speculation, id, work, tokens); };
    const auto ahead = [&] {
      const double before = source != nullptr ? source->spent : 0;
      with = run(with_speculation, id, work, tokens);
      if (source != nullptr) draft_share = std::max(draft_share, (source->spent - before) / with.cpu);
      wasted = std::max(wasted, with.proposed - with.accepted);
    };
    round % 2 == 0 ? (plain(), ahead()) : (ahead(), plain());
    if (with.tokens != without.tokens) {
      fmt::print(stderr, "{}: the answers differ\n", work.name);
      std::exit(1);
    }
    cpu.push_back(without.cpu / with.cpu);
    wall.push_back(without.wall / with.wall);
  }
  const auto [least, most] = std::ranges::minmax(cpu);
  fmt::print(
      R"({{"model":"{}","workload":"{}","tokens":{},"cpu_ratio":{:.3f},"least":{:.3f},"most":{:.3f},"wall_ratio":{:.3f},)"
      R"("draft_share":{:.3f},"wasted":{},"tokens_per_step":{:.2f},"proposed":{},"accepted":{},"cpu_ms_per_token":{:.2f},"rounds":{}}})"
      "\n",
      engine.facts().name, work.name, tokens, median(cpu), least, most, median(wall),
      draft_share, wasted, static_cast<double>(tokens) / static_cast<double>(with.steps), with.proposed, with.accepted,
      1000 * without.cpu / tokens, rounds);
  std::fflush(stdout);
}

// What steps of 1 to 9 rows of one sequence cost, rounds in turn: the rows of one token and of its proposals.
void measure_rows(Engine& engine, int rounds) {
  constexpr std::uint32_t kPrompt = 64, kStepsPerRound = 8;
  std::vector<TokenId> text;
  for (std::uint32_t i = 0; i <= kPrompt + kProposalsMax; ++i) text.push_back(TokenId{i});
  must(engine.reset(0));
  must(engine.prefill(0, std::span(text).first(kPrompt)));
  std::vector<std::vector<double>> cpu(kProposalsMax + 1), wall(kProposalsMax + 1);
  for (int round = 0; round < rounds; ++round) {
    for (std::uint32_t proposals = 0; proposals <= kProposalsMax; ++proposals) {
      const engine::inference::SlotRows rows{
          .slot = 0, .tokens = std::span(text).subspan(kPrompt, proposals + 1), .proposals = proposals};
      const double cpu_began = cpu_seconds(), wall_began = wall_seconds();
      for (std::uint32_t step = 0; step < kStepsPerRound; ++step) {
        must(engine.step({&rows, 1}));
        engine.rewind(0, kPrompt);
      }
      cpu[proposals].push_back(cpu_seconds() - cpu_began);
      wall[proposals].push_back(wall_seconds() - wall_began);
    }
  }
  for (std::uint32_t proposals = 0; proposals <= kProposalsMax; ++proposals) {
    fmt::print(R"({{"model":"{}","rows":{},"cpu_steps":{:.3f},"wall_steps":{:.3f},"wall_ms":{:.3f}}})"
               "\n",
               engine.facts().name, proposals + 1, median(cpu[proposals]) / median(cpu[0]),
               median(wall[proposals]) / median(wall[0]), 1000 * median(wall[proposals]) / kStepsPerRound);
  }
  must(engine.reset(0));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> files;
  std::string only;
  int rounds = 7;
  unsigned threads = std::thread::hardware_concurrency(), tokens = 256;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--"))
      files.push_back(word);
    else if (i + 1 < argc && word == "--rounds")
      rounds = std::atoi(argv[++i]);
    else if (i + 1 < argc && word == "--threads")
      threads = static_cast<unsigned>(std::atoi(argv[++i]));
    else if (i + 1 < argc && word == "--only")
      only = argv[++i];
    else if (i + 1 < argc && word == "--tokens")
      tokens = static_cast<unsigned>(std::atoi(argv[++i]));
  }
  if (files.empty() || tokens > 400)
    return fmt::print(stderr, "usage: speculation_bench MODEL [DRAFT] [--rounds N] [--threads N] [--tokens N<=400] [--only WORKLOAD]\n"),
           2;
  const auto backend = engine::compute::cpu::make_cpu_backend(
                           {.threads_count = threads, .memory_budget_bytes = std::numeric_limits<std::uint64_t>::max()})
                           .value();
  const auto load = [&](const std::string& file, std::uint32_t proposal_rows) {
    const auto plan = Engine::predict(file, {}, *backend);
    must(plan);
    auto engine = Engine::load(file,
                               {.context_tokens = std::min(kContext, plan->context_tokens),
                                .prefill_chunk = 64,
                                .proposal_rows_max = proposal_rows},
                               *backend);
    must(engine);
    return *std::move(engine);
  };
  const auto engine = load(files[0], kProposalsMax);
  const SpeculationOptions lookup{.proposals_max = kProposalsMax, .spent = cpu_seconds};
  std::vector<Workload> all = workloads(engine->facts().vocab, tokens);
  const auto wanted = [&](std::string_view name) { return only.empty() || only == name; };
  if (wanted("rows")) measure_rows(*engine, rounds);
  for (const Workload& work : all)
    if (wanted(work.name)) compare(*engine, work, tokens, lookup, rounds);
  const Workload own{.name = "greedy", .prompt = all[1].prompt, .answer = {}};
  if (wanted(own.name)) compare(*engine, own, tokens, lookup, rounds);
  if (files.size() < 2) return 0;
  const auto draft = load(files[1], 0);
  must(DraftModel::check(*draft));
  DraftModel source(
      *draft, engine->facts().vocab,
      [](SequenceId, std::span<const TokenId>, std::span<const float> logits) { return largest(logits); });
  Counted counted(source);
  const SpeculationOptions drafting{.source = &counted, .proposals_max = kProposalsMax, .spent = cpu_seconds};
  if (wanted("agreed")) {
    const Workload agreed{.name = "three quarters agreed, drafted",
                          .prompt = own.prompt,
                          .answer = agreed_text(*draft, own.prompt, tokens)};
    compare(*engine, agreed, tokens, drafting, rounds, &counted);
  }
  all[1].name += ", drafted";
  if (wanted("drafted")) compare(*engine, all[1], tokens, drafting, rounds, &counted);
  return 0;
}
