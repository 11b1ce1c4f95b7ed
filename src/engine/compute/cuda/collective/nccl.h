#pragma once
// What we use of NCCL, opened at run time: bringing what every GPU has to every GPU. It adds nothing.
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/plan/adapter.h"

namespace llorch::engine::compute::cuda {

inline constexpr const char* kNcclLibrary = "libnccl.so.2";

// What all ranks have becomes what each has, `times` times: all[t][r][0, count) is rank r's mine[t][0, count).
struct Gathering {
  const float* mine = nullptr;
  float* all = nullptr;
  std::uint64_t count = 0;
  std::uint64_t times = 1;
};

// Thread rule: all_gather() by one thread per rank, abort() by any thread at any time, the rest by one thread while nobody is
// in all_gather().
class Nccl {
 public:
  // Connects the GPUs with these numbers, in rank order. Errors: GPU_UNAVAILABLE (no library, or one without what we use),
  // CUDA_ERROR (the GPUs do not find each other).
  static base::Result<std::unique_ptr<Nccl>> open(const std::string& library,
                                                  const std::vector<std::uint32_t>& devices);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  std::uint32_t ranks() const { return static_cast<std::uint32_t>(links_.size()); }
  // Enqueued on the rank's stream; fails once aborted.
  plan::Status all_gather(std::uint32_t rank, const Gathering& what, void* stream) noexcept;
  // Ends what waits for a rank that will not come. There is no way back: the library gives its connections up.
  void abort() noexcept;
  bool is_aborted() const noexcept { return aborted_.load(); }

 private:
  struct Api;
  struct Link {
    std::mutex mutex;  // of what is enqueued and of the end
    void* communicator = nullptr;
  };
  Nccl(std::unique_ptr<Api> api, std::size_t ranks);

  std::unique_ptr<Api> api_;
  std::vector<Link> links_;  // by rank
  std::atomic<bool> aborted_{false};
};

}  // namespace llorch::engine::compute::cuda
