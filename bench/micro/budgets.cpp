// What is small and on the way of every request: the check of a correlation id, the redaction of a text for the log, a place in the
// queue. One thread, its processor time. Usage: budgets_bench. One line of JSON per cost: the median of nine rounds, and the budget.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/entropy.h"
#include "base/log.h"
#include "net/http/message.h"
#include "orchestratord/core/queue/job_queue.h"

namespace {

using namespace llorch;
using orchestratord::core::queue::JobQueue;

constexpr std::uint64_t kRepeats = 20'000;

double cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

// `once` returns something that depends on what it did, so that it is done.
void measure(std::string_view what, double budget_ns, const std::function<std::uint64_t()>& once) {
  std::array<double, 9> rounds{};
  std::uint64_t sum = 0;
  for (double& round : rounds) {
    const double began = cpu_ns();
    for (std::uint64_t i = 0; i < kRepeats; ++i) sum += once();
    round = (cpu_ns() - began) / kRepeats;
  }
  std::ranges::sort(rounds);
  fmt::print(R"({{"cost":"{}","ns":{:.0f},"least":{:.0f},"most":{:.0f},"budget_ns":{:.0f},"sum":{}}})"
             "\n",
             what, rounds[rounds.size() / 2], rounds.front(), rounds.back(), budget_ns, sum % 10);
}

// A place at the end of a queue in which so many wait.
void measure_reserve(std::uint64_t waiting) {
  JobQueue queue(config::QueueConfig{.capacity = -1});
  std::uint64_t arrival = 0;
  const auto reserve = [&] {
    const bool accepted = queue.reserve({.arrival = {++arrival}, .group = {arrival % 64}}).accepted;
    return static_cast<std::uint64_t>(accepted);
  };
  while (arrival < waiting) reserve();
  measure(fmt::format("a place behind {}", waiting), 0, reserve);
}

}  // namespace

int main() {
  base::SystemEntropy entropy;
  const std::string given = "8f2b6c1d-9c7d-4f3a-8f2b-6c1d2e3f4a5b";
  measure("correlation id", 100, [&] { return net::http::correlation_id_or_new(given, entropy).value.size(); });
  const std::string clean =
      "The pool gpu-box-1 has started the worker 0b5dbe0e on its second device after 1.8 seconds.";
  measure("text without a secret", 1000, [&] { return base::redact(clean).size(); });
  const std::string secret =
      "GET /v1/models with Authorization: Bearer 0123456789abcdef0123456789abcdef, "
      "api_key=sk-0123456789abcdef, from http://me:pw@host/";
  measure("text with three secrets", 5000, [&] { return base::redact(secret).size(); });
  for (const std::uint64_t waiting : {1'000U, 100'000U, 1'000'000U}) measure_reserve(waiting);
  return 0;
}
