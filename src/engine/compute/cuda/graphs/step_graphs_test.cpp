// Which steps become graphs, when they end, and that they are never anything but the launches they stand for.
#include "engine/compute/cuda/graphs/step_graphs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/log.h"
#include "engine/compute/cuda/emulation/forwarding_driver.h"

namespace llorch::engine::compute::cuda {
namespace {

using kernels::ResidualAdd;
using kernels::ResidualAddArgs;
using kernels::ScaleSoftcap;
using plan::ExecutionMode;
using plan::MemoryPurpose;

// An emulated machine that notes what is asked of it.
class Noting final : public emulation::ForwardingDriver {
 public:
  struct Log {
    std::string sent;  // k a kernel, G a graph, c a copy, m a mark of time
    bool makes_graphs = true;
    int graphs_alive = 0, graphs_made = 0, graphs_alive_most = 0;
  };
  explicit Noting(Log& log) : ForwardingDriver(emulation::make_driver({})), log_(log) {}
  void copy_to_device(std::byte* device, std::span<const std::byte> host) noexcept override {
    log_.sent += 'c';
    ForwardingDriver::copy_to_device(device, host);
  }
  void record(Event& event) noexcept override {
    log_.sent += 'm';
    ForwardingDriver::record(event);
  }
  void launch(kernels::KernelId kernel, const Grid& grid, const void* args) noexcept override {
    log_.sent += 'k';
    ForwardingDriver::launch(kernel, grid, args);
  }
  std::unique_ptr<Graph> make_graph(std::span<const Launch> launches) noexcept override {
    if (!log_.makes_graphs) return nullptr;
    return std::make_unique<Counted>(ForwardingDriver::make_graph(launches), log_);
  }
  void launch(Graph& graph) noexcept override {
    log_.sent += 'G';
    ForwardingDriver::launch(*static_cast<Counted&>(graph).inner);
  }

 private:
  struct Counted final : Graph {
    Counted(std::unique_ptr<Graph> graph, Log& owner) : inner(std::move(graph)), log(owner) {
      ++log.graphs_made;
      log.graphs_alive_most = std::max(log.graphs_alive_most, ++log.graphs_alive);
    }
    ~Counted() override { --log.graphs_alive; }
    std::unique_ptr<Graph> inner;
    Log& log;
  };
  Log& log_;
};

// A device with three rows of floats; a step adds the first two into the third, twice.
class StepGraphsTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kCount = 8;

  StepGraphsTest() {
    for (float*& row : rows_)
      row = reinterpret_cast<float*>(backend_.allocate(kCount * sizeof(float), MemoryPurpose::kActivations).value());
    put(0, 1.0f);
    put(1, 2.0f);
    log_.sent.clear();
  }
  ~StepGraphsTest() override {
    for (float* row : rows_) backend_.release(reinterpret_cast<std::byte*>(row));
  }

  void put(std::size_t row, float value) {
    const std::vector<float> values(kCount, value);
    backend_.copy_to_device(reinterpret_cast<std::byte*>(rows_[row]), std::as_bytes(std::span(values)));
  }
  float got() {
    std::vector<float> values(kCount);
    backend_.copy_to_host(std::as_writable_bytes(std::span(values)), reinterpret_cast<const std::byte*>(rows_[2]));
    return values[kCount - 1];
  }
  const CudaStream& stream() { return *static_cast<const CudaStream*>(backend_.stream().ptr); }
  void begin(ExecutionMode mode = ExecutionMode::kDecode) { backend_.begin_step({.mode = mode, .total_rows = 1}); }
  void add(float scale) {
    stream().launch<ResidualAdd>({1}, {.a = rows_[0], .b = rows_[1], .y = rows_[2], .count = kCount, .scale = scale});
  }
  // What the device was sent.
  std::string step(float scale, ExecutionMode mode = ExecutionMode::kDecode) {
    log_.sent.clear();
    begin(mode);
    add(0.0f);
    add(scale);
    backend_.end_step();
    return log_.sent;
  }

  Noting::Log log_;
  CudaBackend backend_{std::make_unique<Noting>(log_), 1 << 20};
  float* rows_[3] = {};
};

// Twice launch by launch, then one launch for all. What the step reads from the device is read anew each time.
TEST_F(StepGraphsTest, AStepThatComesAgainBecomesAGraph) {
  EXPECT_EQ(step(10), "kk");
  EXPECT_EQ(step(10), "kk");
  EXPECT_EQ(step(10), "G");
  EXPECT_EQ(got(), 21.0f);
  put(1, 3.0f);
  EXPECT_EQ(step(10), "G");
  EXPECT_EQ(got(), 31.0f);
  EXPECT_EQ(backend_.graphs().counters(), (GraphCounters{.made = 1, .replayed = 2, .eager = 2}));
}

// A host value in an argument makes another step: it is not replayed with the old one, and never becomes a graph itself.
TEST_F(StepGraphsTest, OtherArgumentsAreAnotherStep) {
  for (int i = 0; i < 3; ++i) step(10);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(step(static_cast<float>(100 + i)), "kk");
    EXPECT_EQ(got(), 1.0f + 2.0f * static_cast<float>(100 + i));
  }
  EXPECT_EQ(backend_.graphs().counters().made, 1u);
  EXPECT_LE(backend_.graphs().kept_count(), GraphLimits{}.steps_max);
}

TEST_F(StepGraphsTest, PrefillIsNotHeld) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(step(10, ExecutionMode::kPrefill), "kk");
  EXPECT_EQ(backend_.graphs().counters(), GraphCounters{});
}

// Addresses may mean something else from here on: every graph goes, and comes again as it came first.
TEST_F(StepGraphsTest, ANewLayoutEndsThem) {
  for (int i = 0; i < 3; ++i) step(10);
  EXPECT_EQ(log_.graphs_alive, 1);
  std::byte* grown = backend_.allocate(64, MemoryPurpose::kState).value();
  for (const char* sent : {"kk", "kk", "G"}) EXPECT_EQ(step(10), sent);
  EXPECT_EQ(backend_.graphs().counters().outdated, 1u);
  EXPECT_EQ(log_.graphs_alive, 1);
  backend_.release(grown);
  for (const char* sent : {"kk", "kk", "G"}) EXPECT_EQ(step(10), sent);
  EXPECT_EQ(backend_.graphs().counters(), (GraphCounters{.made = 3, .replayed = 3, .eager = 6, .outdated = 2}));
}

// The one unused for longest makes room.
TEST_F(StepGraphsTest, TheirNumberIsBounded) {
  backend_.limit_graphs({.steps_max = 2});
  for (int i = 0; i < 3; ++i) step(1), step(2);
  EXPECT_EQ(log_.graphs_alive, 2);
  EXPECT_EQ(step(1), "G");
  EXPECT_EQ(step(3), "kk");
  EXPECT_EQ(log_.graphs_alive, 1);
  EXPECT_EQ(step(1), "G");
  EXPECT_EQ(step(2), "kk");
  EXPECT_EQ(backend_.graphs().counters().evicted, 1u);
  EXPECT_EQ(backend_.graphs().kept_count(), 2u);
  backend_.limit_graphs({.steps_max = 0});
  EXPECT_EQ(log_.graphs_alive, 0);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(step(1), "kk");
}

// Graphs take memory that no ledger sees. Of stretches that come in turn and do not all fit, those that fit stay graphs; the
// others are launched one by one, and nothing is made again and again.
TEST_F(StepGraphsTest, TheirMemoryIsBounded) {
  constexpr int kFit = 5;
  backend_.limit_graphs({.bytes_max = kFit * graph_bytes(2)});
  const auto rounds = [&](int count, int first, int steps) {
    std::string sent;
    for (int round = 0; round < count; ++round)
      for (int i = 0; i < steps; ++i) sent = step(static_cast<float>(first + i));
    return sent;
  };
  EXPECT_EQ(rounds(3, 1, kFit), "G");
  EXPECT_EQ(log_.graphs_alive, kFit);
  EXPECT_EQ(backend_.graphs().graphs_bytes(), kFit * graph_bytes(2));
  EXPECT_EQ(rounds(30, 1, kFit + 3), "kk");
  EXPECT_EQ(log_.graphs_made, kFit);
  EXPECT_EQ(backend_.graphs().counters().evicted, 0u);
  // When none of them comes any more, others take their place.
  EXPECT_EQ(rounds(6, 100, kFit), "G");
  EXPECT_EQ(log_.graphs_made, 2 * kFit);
  EXPECT_EQ(log_.graphs_alive, kFit);
  EXPECT_EQ(log_.graphs_alive_most, kFit);
  EXPECT_EQ(backend_.graphs().counters().evicted, std::uint64_t{kFit});
  EXPECT_EQ(backend_.graphs().graphs_count(), std::size_t{kFit});
  // One that made room is remembered, and comes back like any other.
  EXPECT_EQ(rounds(3, 1, 1), "G");
  EXPECT_EQ(log_.graphs_alive, kFit);
  // A step that alone is too much is no graph, and drives none away.
  backend_.limit_graphs({.bytes_max = graph_bytes(1)});
  EXPECT_EQ(log_.graphs_alive, 0);
  EXPECT_EQ(rounds(9, 1, 1), "kk");
  EXPECT_EQ(backend_.graphs().graphs_bytes(), 0u);
}

// Steps of several GPUs are many graphs each: the bound is for all places together.
TEST_F(StepGraphsTest, StretchesShareTheirBound) {
  constexpr int kStretches = 9, kFit = 20;
  backend_.limit_graphs({.bytes_max = kFit * graph_bytes(1)});
  const auto step_of = [&](float scale) {
    log_.sent.clear();
    begin();
    for (int i = 0; i < kStretches; ++i) {
      add(scale);
      backend_.end_stretch();
    }
    backend_.end_step();
    return std::ranges::count(log_.sent, 'G');
  };
  for (int round = 0; round < 20; ++round)
    for (const float shape : {1.0f, 2.0f, 3.0f}) step_of(shape);
  EXPECT_EQ(step_of(1) + step_of(2) + step_of(3), kFit);
  EXPECT_EQ(log_.graphs_made, kFit);
  for (int round = 0; round < 9; ++round) step_of(4);
  EXPECT_EQ(step_of(4), kStretches);
  EXPECT_EQ(log_.graphs_alive_most, kFit);
  EXPECT_EQ(log_.graphs_made, kFit + kStretches);
}

// Whoever looks in the middle of a step sees what was launched so far, and what comes later is launched at once.
TEST_F(StepGraphsTest, NothingOvertakesWhatIsHeld) {
  for (int i = 0; i < 3; ++i) {
    log_.sent.clear();
    begin();
    add(10);
    EXPECT_EQ(log_.sent, "");
    EXPECT_EQ(got(), 21.0f);
    EXPECT_EQ(log_.sent, "k");
    put(1, 2.0f);
    add(5);
    EXPECT_EQ(log_.sent, "kck");
    backend_.end_step();
    EXPECT_EQ(log_.sent, "kck");
    EXPECT_EQ(got(), 11.0f);
  }
  EXPECT_EQ(backend_.graphs().counters(), (GraphCounters{.eager = 3}));
}

// What lies between two sums over GPUs is replayed by itself: a stretch that is as it was is a graph beside one that is not.
TEST_F(StepGraphsTest, AStepMayComeInStretches) {
  const auto stretches = [&](float first, float second) {
    log_.sent.clear();
    begin();
    add(first);
    add(first);
    backend_.end_stretch();
    log_.sent += '|';
    add(second);
    backend_.end_step();
    return log_.sent;
  };
  EXPECT_EQ(stretches(1, 2), "kk|k");
  EXPECT_EQ(stretches(1, 2), "kk|k");
  EXPECT_EQ(stretches(1, 2), "G|G");
  EXPECT_EQ(stretches(1, 3), "G|k");
  EXPECT_EQ(got(), 7.0f);
  EXPECT_EQ(stretches(4, 2), "kk|G");
  EXPECT_EQ(got(), 5.0f);
  backend_.time_steps(true);
  EXPECT_EQ(stretches(1, 2), "mG|Gm");
  EXPECT_EQ(backend_.take_step_times().steps, 1u);
  backend_.time_steps(false);
  EXPECT_EQ(backend_.graphs().kept_count(), 4u);
  // A whole step that begins with the same launches is another stretch.
  EXPECT_EQ(step(1), "kk");
  EXPECT_EQ(backend_.graphs().counters(), (GraphCounters{.made = 2, .replayed = 6, .eager = 7}));
}

// Where a step is cut, and what the other places remember, is no matter of the place that is full.
TEST_F(StepGraphsTest, EachPlaceHasItsOwnBound) {
  backend_.limit_graphs({.steps_max = 2});
  const auto stretches = [&](float second) {
    log_.sent.clear();
    begin();
    add(1);
    backend_.end_stretch();
    add(second);
    backend_.end_step();
    return log_.sent;
  };
  for (int i = 0; i < 3; ++i) stretches(2);
  EXPECT_EQ(stretches(2), "GG");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(stretches(static_cast<float>(10 + i)), "Gk");
  EXPECT_EQ(stretches(2), "Gk");
  EXPECT_EQ(backend_.graphs().counters().evicted, 1u);
  EXPECT_EQ(backend_.graphs().kept_count(), 3u);
  std::byte* grown = backend_.allocate(64, MemoryPurpose::kState).value();
  EXPECT_EQ(stretches(2), "kk");
  EXPECT_EQ(backend_.graphs().counters().outdated, 1u);
  EXPECT_EQ(log_.graphs_alive, 0);
  backend_.release(grown);
}

// The step goes on as it was, and it is said once.
TEST_F(StepGraphsTest, AMachineThatMakesNoneIsNoFault) {
  log_.makes_graphs = false;
  int lines = 0;
  base::capture_log_lines([&](std::string_view line) { lines += line.find("engine.graph_refused") != line.npos; });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(step(10), "kk");
  base::capture_log_lines({});
  EXPECT_EQ(got(), 21.0f);
  EXPECT_EQ(lines, 1);
  EXPECT_EQ(backend_.graphs().counters(), (GraphCounters{.eager = 5, .refused = 1}));
}

// Held, replayed, in prefill and looked into: what a step's kernels took (one microsecond each, here). Nothing is marked unasked.
TEST_F(StepGraphsTest, StepsAreTimedWhereAsked) {
  EXPECT_EQ(step(10), "kk");
  backend_.time_steps(true);
  EXPECT_EQ(step(10), "mkkm");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(step(10), "mGm");
  EXPECT_EQ(step(10, ExecutionMode::kPrefill), "mkkm");
  log_.sent.clear();
  begin();
  add(10);
  put(1, 2.0f);
  add(10);
  backend_.end_step();
  EXPECT_EQ(log_.sent, "mkckm");
  const StepTimes::Sum sum = backend_.take_step_times();
  EXPECT_EQ(sum.steps, 23u);
  EXPECT_NEAR(sum.seconds, 46e-6, 1e-9);
  EXPECT_EQ(backend_.take_step_times().steps, 0u);
  backend_.time_steps(false);
  EXPECT_EQ(step(10), "G");
  EXPECT_EQ(backend_.take_step_times().steps, 0u);
}

TEST_F(StepGraphsTest, StepsAndRowsAreCountedWhereAsked) {
  LaunchCounters counters;
  step(10);
  backend_.count_launches(&counters);
  for (int i = 0; i < 4; ++i) step(10);
  backend_.begin_step({.mode = ExecutionMode::kPrefill, .total_rows = 12});
  backend_.end_step();
  EXPECT_EQ(counters.total, 8u);  // kernels, also those inside a graph
  EXPECT_EQ(counters.steps, 5u);
  EXPECT_EQ(counters.rows, 16u);
  EXPECT_EQ(counters.per_step(), 8.0 / 5);
  EXPECT_EQ(counters.per_row(), 0.5);
  backend_.count_launches(nullptr);
  step(10);
  EXPECT_EQ(counters.steps, 5u);
}

// What lies between the members of arguments is no difference; what they hold is.
TEST(StepRecord, ComparesValues) {
  StepRecord records[3];
  for (std::size_t i = 0; i < 3; ++i) {
    alignas(kernels::CausalConvArgs) std::byte memory[sizeof(kernels::CausalConvArgs)];
    std::memset(memory, i == 0 ? 0x00 : 0xFF, sizeof memory);
    auto& args = *new (memory) kernels::CausalConvArgs;
    args.silu = i == 2;
    records[i].add<kernels::CausalConv>({1, 2, 3}, args);
    records[i].add<ScaleSoftcap>({4}, {.count = 5, .scale = 6, .softcap = 7});
  }
  EXPECT_EQ(records[0], records[1]);
  EXPECT_EQ(records[0].digest(), records[1].digest());
  EXPECT_FALSE(records[0] == records[2]);
  StepRecord other_grid;
  other_grid.add<ScaleSoftcap>({4, 2}, {.count = 5, .scale = 6, .softcap = 7});
  StepRecord same_args;
  same_args.add<ScaleSoftcap>({4}, {.count = 5, .scale = 6, .softcap = 7});
  EXPECT_FALSE(other_grid == same_args);
  EXPECT_NE(other_grid.digest(), same_args.digest());
}

}  // namespace
}  // namespace llorch::engine::compute::cuda
