#include "worker/loading/packed_weights.h"

#include <sys/resource.h>

#include <utility>

#include "base/log.h"

namespace llorch::worker::loading {

using engine::inference::Engine;
using engine::inference::repack_cache::RepackCache;

namespace {

// Smaller ones are packed about as fast as they are read.
constexpr std::uint64_t kKeptBytesMin = 8u << 20;

// A tenth of what the threads of the steps get where they all want the processor.
constexpr int kNice = 10;

void keep(const Engine& engine, const RepackCache& cache, const std::string& model_digest,
          const std::stop_token& stop) {
  ::setpriority(PRIO_PROCESS, 0, kNice);  // of this thread alone, on Linux
  const auto kept = engine.keep_weights(cache, model_digest, stop);
  if (kept && kept->already) return;
  if (kept) {
    base::log_event(base::LogLevel::kInfo, "packed_weights_kept", {},
                    "The weights are kept as packed; the next start reads them.",
                    {{"bytes", static_cast<std::int64_t>(kept->bytes)}});
    return;
  }
  const bool ours = kept.error().code == base::ErrorCode::kCancelled;  // nothing that anybody must mend
  base::log_event(ours ? base::LogLevel::kInfo : base::LogLevel::kWarn, "packed_weights_not_kept", {},
                  "The weights are not kept as packed; the next start packs them again.",
                  {{"code", kept.error().name()}, {"message", kept.error().message}});
}

}  // namespace

std::optional<RepackCache> repack_cache_of(const std::string& directory, std::int64_t bytes_max) {
  if (directory.empty() || bytes_max <= 0) return std::nullopt;
  return RepackCache({.directory = directory, .bytes_max = static_cast<std::uint64_t>(bytes_max)});
}

WeightKeeper::WeightKeeper(const Engine& engine, const std::optional<RepackCache>& cache, std::string model_digest) {
  if (!cache || engine.memory_plan().weights_bytes < kKeptBytesMin) return;
  thread_ = std::jthread([&engine, &cache, digest = std::move(model_digest)](const std::stop_token& stop) {
    keep(engine, *cache, digest, stop);
  });
}

}  // namespace llorch::worker::loading
