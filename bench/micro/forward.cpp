// Tokens per second of one sequence: prefill of `PROMPT` tokens and decoding, behind 0 and `CONTEXT` tokens of context. CPU
// seconds of the process stand beside the clock's: other programs on the cores move the latter more.
// Usage: forward_bench MODEL [THREADS=all] [ROUNDS=5] [CHUNK=64] [CONTEXT=4096] [PROMPT=512]. One JSON line per context.
#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <thread>
#include <vector>

#include "engine/compute/cpu/backend.h"
#include "engine/inference/engine.h"
#include "median.h"

namespace {

using namespace llorch;
using base::TokenId;
using bench::median;
using engine::inference::Engine;

constexpr std::uint32_t kDecodeSteps = 16;

struct Time {
  double clock = 0;
  double cpu = 0;
};

Time now() {
  timespec cpu{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  return {.clock = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(),
          .cpu = static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec)};
}

void must(const auto& result) {
  if (result) return;
  fmt::print(stderr, "{}\n", result.error().message);
  std::exit(1);
}

struct Rates {
  std::vector<double> clock, cpu;  // tokens per second, and per CPU second of one thread
  void add(const Time& begin, std::uint32_t tokens, unsigned threads) {
    const Time end = now();
    clock.push_back(tokens / (end.clock - begin.clock));
    cpu.push_back(tokens * threads / (end.cpu - begin.cpu));
  }
};

std::vector<TokenId> tokens_of(const Engine& engine, std::uint32_t count) {
  std::vector<TokenId> tokens(count);
  for (std::uint32_t i = 0; i < count; ++i) tokens[i] = TokenId{(i * 7 + 3) % engine.facts().vocab};
  return tokens;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: forward_bench MODEL [THREADS] [ROUNDS] [CHUNK] [CONTEXT] [PROMPT]\n");
    return 2;
  }
  const auto number = [&](int at, unsigned otherwise) {
    return argc > at ? static_cast<unsigned>(std::atoi(argv[at])) : otherwise;
  };
  const unsigned threads = number(2, std::thread::hardware_concurrency()), rounds = number(3, 5), chunk = number(4, 64);
  const unsigned context = number(5, 4096), prompt = number(6, 512);
  const auto backend = engine::compute::cpu::make_cpu_backend(
                           {.threads_count = threads, .memory_budget_bytes = std::numeric_limits<std::uint64_t>::max()})
                           .value();
  const auto loaded = Engine::load(
      argv[1], {.context_tokens = context + prompt + kDecodeSteps + 1, .slots = 1, .prefill_chunk = chunk}, *backend);
  must(loaded);
  Engine& engine = **loaded;
  const auto behind = tokens_of(engine, context), asked = tokens_of(engine, prompt), one = tokens_of(engine, 1);
  for (unsigned before : {0u, context}) {
    Rates prefill, decode;
    for (unsigned round = 0; round < rounds; ++round) {
      must(engine.reset(0));
      if (before != 0) must(engine.prefill(0, behind));
      Time begin = now();
      must(engine.prefill(0, asked));
      prefill.add(begin, prompt, threads);
      begin = now();
      for (std::uint32_t step = 0; step < kDecodeSteps; ++step) must(engine.prefill(0, one));
      decode.add(begin, kDecodeSteps, threads);
    }
    fmt::print(R"({{"model":"{}","threads":{},"chunk":{},"context":{},"prefill_tokens_per_s":{:.1f},)"
               R"("prefill_tokens_per_cpu_s":{:.1f},"decode_tokens_per_s":{:.1f},"decode_tokens_per_cpu_s":{:.1f},)"
               R"("rounds":{}}})"
               "\n",
               engine.facts().name, threads, chunk, before, median(prefill.clock), median(prefill.cpu),
               median(decode.clock), median(decode.cpu), rounds);
    if (context == 0) break;
  }
  return 0;
}
