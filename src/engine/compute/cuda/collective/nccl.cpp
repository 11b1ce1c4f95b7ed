#include "engine/compute/cuda/collective/nccl.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/shared_library.h"

namespace llorch::engine::compute::cuda {

using base::ErrorCode;
using base::Result;
using plan::Status;

namespace {

// ncclResult_t, ncclDataType_t and ncclComm_t of the NCCL API reference.
constexpr int kNcclSuccess = 0;
constexpr int kNcclFloat32 = 7;
// Calls the library is given to launch as one.
constexpr std::uint64_t kGroupMax = 64;
using NcclComm = void*;

}  // namespace

struct Nccl::Api {
  base::SharedLibrary library;
  int (*init_all)(NcclComm*, int, const int*) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t, int, NcclComm, void*) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*abort)(NcclComm) = nullptr;
  int (*destroy)(NcclComm) = nullptr;
  const char* (*error_string)(int) = nullptr;

  bool load_all() {
    return library.load(init_all, "ncclCommInitAll") && library.load(all_gather, "ncclAllGather") &&
           library.load(group_start, "ncclGroupStart") && library.load(group_end, "ncclGroupEnd") &&
           library.load(abort, "ncclCommAbort") && library.load(destroy, "ncclCommDestroy") &&
           library.load(error_string, "ncclGetErrorString");
  }
};

Nccl::Nccl(std::unique_ptr<Api> api, std::size_t ranks) : api_(std::move(api)), links_(ranks) {}

Nccl::~Nccl() {
  for (Link& link : links_) {
    if (link.communicator != nullptr) api_->destroy(link.communicator);
  }
}

Result<std::unique_ptr<Nccl>> Nccl::open(const std::string& library, const std::vector<std::uint32_t>& devices) {
  // From 2.22 on the library connects GPUs when they first meet: in a step, with memory that no budget knows of. This has it do
  // so here, unless the operator says otherwise.
  ::setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  auto api = std::make_unique<Api>();
  api->library = base::SharedLibrary(library);
  if (!api->library.is_open()) {
    return base::fail(ErrorCode::kGpuUnavailable,
                      fmt::format("{} GPUs share a model through NCCL, and {} cannot be opened; install NCCL 2, or use "
                                  "one GPU",
                                  devices.size(), library));
  }
  if (!api->load_all()) {
    return base::fail(ErrorCode::kGpuUnavailable, fmt::format("{} lacks functions of NCCL 2", library));
  }
  std::unique_ptr<Nccl> nccl(new Nccl(std::move(api), devices.size()));
  std::vector<NcclComm> communicators(devices.size(), nullptr);
  const std::vector<int> numbers(devices.begin(), devices.end());
  const int code = nccl->api_->init_all(communicators.data(), static_cast<int>(numbers.size()), numbers.data());
  if (code != kNcclSuccess) {
    return base::fail(ErrorCode::kCudaError, fmt::format("{} GPUs do not find each other: {}", devices.size(),
                                                         nccl->api_->error_string(code)));
  }
  for (std::size_t rank = 0; rank < devices.size(); ++rank) nccl->links_[rank].communicator = communicators[rank];
  return nccl;
}

Status Nccl::all_gather(std::uint32_t rank, const Gathering& what, void* stream) noexcept {
  Link& link = links_[rank];
  const std::lock_guard lock(link.mutex);
  if (aborted_.load()) return Status::failed(ErrorCode::kCancelled);
  for (std::uint64_t begin = 0; begin < what.times; begin += kGroupMax) {
    const std::uint64_t end = std::min(what.times, begin + kGroupMax);
    int code = api_->group_start();
    for (std::uint64_t t = begin; t < end && code == kNcclSuccess; ++t) {
      code = api_->all_gather(what.mine + t * what.count, what.all + t * what.count * links_.size(), what.count,
                              kNcclFloat32, link.communicator, stream);
    }
    const int ended = api_->group_end();  // also of a group that failed
    if (code != kNcclSuccess || ended != kNcclSuccess) return Status::failed(ErrorCode::kCudaError);
  }
  return Status::ok();
}

void Nccl::abort() noexcept {
  if (aborted_.exchange(true)) return;
  // Who holds a lock may be waiting for one of the others to be ended: those that can be go first.
  std::vector<std::unique_lock<std::mutex>> locks;
  for (Link& link : links_) {
    locks.emplace_back(link.mutex, std::try_to_lock);
    if (locks.back()) api_->abort(std::exchange(link.communicator, nullptr));
  }
  for (std::size_t rank = 0; rank < links_.size(); ++rank) {
    if (locks[rank]) continue;
    locks[rank].lock();
    api_->abort(std::exchange(links_[rank].communicator, nullptr));
  }
}

}  // namespace llorch::engine::compute::cuda
