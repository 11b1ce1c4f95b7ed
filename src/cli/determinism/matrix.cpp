#include "cli/determinism/matrix.h"

#include <algorithm>
#include <optional>

namespace llorch::cli::determinism {
namespace {

using base::ErrorCode;
using engine::inference::Engine;

// What tells cells' circumstances apart; any number would do.
constexpr std::uint64_t kCircumstancesSeed = 77;
constexpr std::uint32_t kProposalRows = 24;

struct Loaded {
  engine::inference::devices::OpenDevices devices;
  std::unique_ptr<Engine> engine;
};

std::uint32_t longest(std::span<const Request> requests) {
  std::uint32_t tokens = 64;
  for (const Request& request : requests) tokens = std::max(tokens, request.tokens_max());
  return tokens;
}

class Matrix {
 public:
  Matrix(const MatrixOptions& options, const MakeDevices& make_devices, const base::Clock& clock,
         const OnProgress& progress)
      : options_(options), make_devices_(make_devices), clock_(clock), progress_(progress) {}

  base::Result<Report> run() {
    const std::vector<Cell> cells = options_.quick ? quick_cells() : all_cells();
    for (const Cell& cell : cells) {
      CellResult result{.name = cell.name, .started_unix_ms = clock_.now().unix_ms};
      const std::int64_t start_ms = clock_.now().mono_ms;
      done_ = 0;
      on_request_ = [&, index = report_.cells.size()] {
        ++done_;
        if (progress_) progress_({cell.name, index, cells.size(), std::min(done_, requests_.size()), requests_.size()});
      };
      if (const auto ran = run(cell, result); !ran) {
        // A device this machine does not have is no failure, except for the reference; nor a layer that the model does not have.
        const bool is_absent = ran.error().code == ErrorCode::kGpuUnavailable ||
                               (cell.predicted && ran.error().code == ErrorCode::kModelIncompatible);
        if (!is_absent || report_.cells.empty()) return base::fail(ran.error());
        result.skipped = ran.error().message;
      }
      result.wall_ms = clock_.now().mono_ms - start_ms;
      report_.cells.push_back(std::move(result));
    }
    return std::move(report_);
  }

 private:
  base::Result<Loaded> load(const Cell& cell) {
    Loaded loaded;
    loaded.devices = TRY(make_devices_(cell.device));
    if (requests_.empty()) TRY(make_requests(loaded.devices));
    loaded.engine = TRY(Engine::load(options_.model,
                                     {.context_tokens = longest(requests_),
                                      .slots = cell.slots,
                                      .kv_dtype = options_.kv_dtype,
                                      .prefill_chunk = cell.chunk,
                                      .proposal_rows_max = cell.foretold || cell.predicted ? kProposalRows : 0,
                                      .predicts = cell.predicted,
                                      .kv_tokens = std::uint64_t{cell.contexts} * longest(requests_)},
                                     loaded.devices.of_engine()));
    return loaded;
  }

  // What the model is, from an engine too small to be of any other use.
  base::Result<> make_requests(const engine::inference::devices::OpenDevices& devices) {
    const auto engine =
        TRY(Engine::load(options_.model, {.context_tokens = 64, .kv_dtype = options_.kv_dtype, .prefill_chunk = 1},
                         devices.of_engine()));
    report_.facts = engine->facts();
    requests_ = thin_out(TRY(make_corpus(corpus_json(), {engine->facts().vocab, engine->facts().context_tokens_model})),
                         options_.requests_max);
    return {};
  }

  base::Result<> run(const Cell& cell, CellResult& result) {
    std::optional<Loaded> first = TRY(load(cell));
    Circumstances how = cell.circumstances;
    how.seed += kCircumstancesSeed;
    foretold_ = cell.foretold;
    switch (cell.kind) {
      case Cell::Kind::kOnce: return once(*first->engine, how, result);
      case Cell::Kind::kTwice: {
        // A few at a time: the cache keeps as many windows as there are slots.
        const std::span<const Request> all(requests_);
        for (std::size_t i = 0; i < all.size(); i += cell.slots) {
          const auto few = all.subspan(i, std::min<std::size_t>(cell.slots, all.size() - i));
          TRY(part(*first->engine, few, i, how, result));
          TRY(part(*first->engine, few, i, how, result));
        }
        return {};
      }
      case Cell::Kind::kInterrupted: {
        how.steps_max = 20;
        TRY(once(*first->engine, how, result));
        first.reset();
        how.steps_max = 0;
        const Loaded second = TRY(load(cell));
        return once(*second.engine, how, result);
      }
      case Cell::Kind::kReplicas: {
        const Loaded second = TRY(load(cell));
        const std::size_t half = requests_.size() / 2;
        const std::span<const Request> all(requests_);
        // Each answers half of the requests, and then the other's half.
        for (const bool swapped : {false, true}) {
          Engine& one = swapped ? *second.engine : *first->engine;
          Engine& other = swapped ? *first->engine : *second.engine;
          TRY(part(one, all.first(half), 0, how, result));
          TRY(part(other, all.subspan(half), half, how, result));
        }
        return {};
      }
    }
    return {};
  }

  base::Result<> once(Engine& engine, const Circumstances& how, CellResult& result) {
    return part(engine, requests_, 0, how, result);
  }

  base::Result<> part(Engine& engine, std::span<const Request> requests, std::size_t first, Circumstances how,
                      CellResult& result) {
    if (foretold_) how.foretold = std::span<const Trace>(reference_).subspan(first, requests.size());
    const RunResult ran = TRY(run_requests(engine, requests, how, on_request_));
    result.counts.steps += ran.counts.steps;
    result.counts.preemptions += ran.counts.preemptions;
    result.counts.cached_tokens += ran.counts.cached_tokens;
    result.counts.proposed += ran.counts.proposed;
    result.counts.accepted += ran.counts.accepted;
    if (reference_.empty()) return take_reference(ran, result);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto at = departure(ran.traces[i], reference_[first + i]);
      if (how.steps_max == 0) ++result.requests;
      if (!at) continue;
      ++result.mismatches;
      const std::uint64_t seed = requests[i].seed;
      const auto known = [&](const Mismatch& m) { return m.cell == result.name && m.seed == seed; };
      if (std::ranges::none_of(report_.mismatches, known)) report_.mismatches.push_back({result.name, seed, *at});
    }
    return {};
  }

  base::Result<> take_reference(const RunResult& ran, CellResult& result) {
    reference_ = ran.traces;
    result.requests = reference_.size();
    for (std::size_t i = 0; i < reference_.size(); ++i) {
      report_.requests.push_back({.seed = requests_[i].seed,
                                  .prompt_tokens = requests_[i].prompt.size(),
                                  .tokens = reference_[i].tokens.size(),
                                  .tokens_sha256 = reference_[i].tokens_sha256()});
    }
    return {};
  }

  const MatrixOptions& options_;
  const MakeDevices& make_devices_;
  const base::Clock& clock_;
  const OnProgress& progress_;
  std::vector<Request> requests_;
  std::vector<Trace> reference_;
  bool foretold_ = false;  // of the cell under way
  Report report_;
  std::size_t done_ = 0;
  RequestDone on_request_;
};

}  // namespace

std::vector<Cell> all_cells() {
  using Kind = Cell::Kind;
  return {
      {.name = "alone"},
      {.name = "batch 2", .slots = 2, .circumstances = {.seed = 1, .strangers = 1}},
      {.name = "batch 8", .slots = 8, .circumstances = {.seed = 2, .strangers = 3}},
      {.name = "batch 32", .slots = 32, .circumstances = {.seed = 3, .strangers = 8}},
      {.name = "batch 64", .slots = 64, .circumstances = {.seed = 7, .strangers = 16}},
      {.name = "arrival shuffled",
       .slots = 8,
       .chunk = 37,
       .circumstances = {.seed = 4, .shuffled = true, .strangers = 2}},
      {.name = "chunk 1", .slots = 4, .chunk = 1},
      {.name = "chunk 7", .slots = 4, .chunk = 7},
      {.name = "chunk 64", .slots = 4, .chunk = 64},
      {.name = "chunk 512", .slots = 4, .chunk = 512},
      {.name = "cache cold", .slots = 4, .chunk = 64, .contexts = 32, .circumstances = {.cached = true}},
      {.name = "cache warm",
       .kind = Kind::kTwice,
       .slots = 4,
       .chunk = 64,
       .contexts = 32,
       .circumstances = {.cached = true}},
      {.name = "preempted", .slots = 4, .chunk = 48, .contexts = 1, .circumstances = {.seed = 5, .pause_every = 3}},
      {.name = "forked", .slots = 8, .chunk = 64, .circumstances = {.seed = 6, .forked = true}},
      {.name = "speculated",
       .kind = Kind::kTwice,
       .slots = 4,
       .chunk = 64,
       .contexts = 32,
       .foretold = true,
       .circumstances = {.seed = 8, .forked = true, .cached = true}},
      {.name = "speculated, preempted",
       .slots = 4,
       .chunk = 48,
       .contexts = 1,
       .foretold = true,
       .circumstances = {.seed = 9, .shuffled = true, .strangers = 1, .pause_every = 3}},
      {.name = "predicted",
       .slots = 4,
       .chunk = 48,
       .contexts = 2,
       .predicted = true,
       .circumstances = {.seed = 10, .shuffled = true, .strangers = 1, .pause_every = 3, .forked = true}},
      {.name = "threads 1", .slots = 8, .chunk = 64, .device = {.threads = 1}},
      {.name = "threads 2", .slots = 8, .chunk = 64, .device = {.threads = 2}},
      {.name = "avx2", .slots = 8, .chunk = 64, .device = {.isa = "avx2"}},
      {.name = "avxvnni", .slots = 8, .chunk = 64, .device = {.isa = "avxvnni"}},
      {.name = "avx512", .slots = 8, .chunk = 64, .device = {.isa = "avx512"}},
      {.name = "amx", .slots = 8, .chunk = 64, .device = {.isa = "amx"}},
      {.name = "restarted", .kind = Kind::kInterrupted, .slots = 8, .chunk = 64},
      {.name = "two replicas", .kind = Kind::kReplicas, .slots = 4, .chunk = 64},
  };
}

std::vector<Cell> quick_cells() {
  static constexpr std::array kQuick{std::string_view("alone"),      std::string_view("arrival shuffled"),
                                     std::string_view("chunk 7"),    std::string_view("cache warm"),
                                     std::string_view("preempted"),  std::string_view("forked"),
                                     std::string_view("threads 2"),  std::string_view("avx2"),
                                     std::string_view("restarted"),  std::string_view("batch 32"),
                                     std::string_view("speculated"), std::string_view("speculated, preempted"),
                                     std::string_view("predicted")};
  std::vector<Cell> cells = all_cells();
  std::erase_if(cells, [](const Cell& cell) { return std::ranges::find(kQuick, cell.name) == kQuick.end(); });
  return cells;
}

base::Result<Report> run_matrix(const MatrixOptions& options, const MakeDevices& make_devices, const base::Clock& clock,
                                const OnProgress& progress) {
  return Matrix(options, make_devices, clock, progress).run();
}

}  // namespace llorch::cli::determinism
