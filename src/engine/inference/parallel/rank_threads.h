#pragma once
// One thread per device of an engine.
#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace llorch::engine::inference::parallel {

// Runs a job once per rank, all at the same time: rank 0 on the thread that asks, every other always on the same thread of
// its own. What the asking thread did before a run every rank sees, what the ranks did it sees after. Nothing is allocated
// after construction. Thread rule: one run() at a time.
class RankThreads {
 public:
  explicit RankThreads(std::uint32_t ranks);  // at least one
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  std::uint32_t ranks() const { return static_cast<std::uint32_t>(threads_.size()) + 1; }

  // Returns when job(rank) has returned for every rank.
  template <class Job>
  void run(Job&& job) {
    start([](void* context, std::uint32_t rank) { (*static_cast<std::remove_reference_t<Job>*>(context))(rank); },
          const_cast<void*>(static_cast<const void*>(&job)));
  }

 private:
  using Entry = void (*)(void* context, std::uint32_t rank);
  void start(Entry entry, void* context);
  void serve(std::uint32_t rank);

  Entry entry_ = nullptr;  // null in the last round: the threads end
  void* context_ = nullptr;
  std::atomic<std::uint32_t> round_{0};
  std::atomic<std::uint32_t> running_{0};
  std::vector<std::thread> threads_;  // of ranks 1 ..
};

}  // namespace llorch::engine::inference::parallel
