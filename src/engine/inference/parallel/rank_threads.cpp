#include "engine/inference/parallel/rank_threads.h"

#include "base/assert.h"

namespace llorch::engine::inference::parallel {

RankThreads::RankThreads(std::uint32_t ranks) {
  ASSERT(ranks > 0, "no rank");
  threads_.reserve(ranks - 1);
  for (std::uint32_t rank = 1; rank < ranks; ++rank) threads_.emplace_back([this, rank] { serve(rank); });
}

RankThreads::~RankThreads() {
  entry_ = nullptr;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::start(Entry entry, void* context) {
  entry_ = entry;
  context_ = context;
  running_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  entry(context, 0);
  for (std::uint32_t left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire))
    running_.wait(left, std::memory_order_acquire);
}

void RankThreads::serve(std::uint32_t rank) {
  for (std::uint32_t seen = 0;; ++seen) {
    round_.wait(seen, std::memory_order_acquire);
    if (entry_ == nullptr) return;
    entry_(context_, rank);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

}  // namespace llorch::engine::inference::parallel
