#include "engine/compute/cuda/device_sampler.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/assert.h"

namespace llorch::engine::compute::cuda {

using base::Result;
using kernels::DeviceDraw;
using plan::DrawLimits;
using plan::RowDraw;
using plan::RowDrawn;
using plan::RowEdit;

namespace {

// Scratch is for so many draws; more go in turns. As many blocks of the last launch as half of a large GPU runs at once.
constexpr std::uint32_t kDrawsAtOnce = 64;

std::uint32_t chunks_of(const DrawLimits& limits) {
  return (limits.width + kernels::kDrawChunk - 1) / kernels::kDrawChunk;
}
std::uint32_t mask_words(const DrawLimits& limits) { return (limits.width + 31) / 32; }

std::uint64_t sent_bytes_max(const DrawLimits& limits) {
  const std::uint64_t one = sizeof(DeviceDraw) + std::uint64_t{limits.edits_max} * sizeof(RowEdit) +
                            std::uint64_t{mask_words(limits)} * sizeof(std::uint32_t);
  return limits.rows_max * one + alignof(RowEdit);
}

std::uint64_t drawn_at(const DrawLimits& limits) { return (sent_bytes_max(limits) + 63) / 64 * 64; }

// Edits follow the draws, at the next multiple of their alignment.
std::uint64_t edits_at(std::size_t draws) {
  return (draws * sizeof(DeviceDraw) + alignof(RowEdit) - 1) / alignof(RowEdit) * alignof(RowEdit);
}

}  // namespace

CudaDeviceSampler::Arrays::Arrays(WorkspaceArena arena, const DrawLimits& limits) {
  const std::uint64_t at_once = std::min(limits.rows_max, kDrawsAtOnce), chunks = chunks_of(limits);
  sent = arena.take<std::byte>(sent_bytes_max(limits));
  drawn = arena.take<RowDrawn>(limits.rows_max);
  bests = arena.take<kernels::DrawBest>(at_once * chunks);
  counts = arena.take<std::uint32_t>(at_once * chunks);
  keys = arena.take<std::uint64_t>(at_once * limits.width);
  indices = arena.take<std::uint32_t>(at_once * limits.width);
  bytes = arena.used_bytes();
}

std::uint64_t CudaDeviceSampler::device_bytes(const DrawLimits& limits) { return Arrays({}, limits).bytes; }

Result<std::unique_ptr<CudaDeviceSampler>> CudaDeviceSampler::make(const DrawLimits& limits, plan::Backend& backend,
                                                                   Driver& driver, const CudaStream& stream) {
  ASSERT(limits.rows_max > 0 && limits.width > 0, "rows_max={} width={}", limits.rows_max, limits.width);
  auto memory = TRY(plan::DeviceBuffer::allocate(backend, device_bytes(limits), plan::MemoryPurpose::kTables));
  const std::uint64_t staged = drawn_at(limits) + limits.rows_max * sizeof(RowDrawn);
  std::unique_ptr<Staging> staging = driver.make_staging(staged);
  if (staging == nullptr) {
    return base::fail(base::ErrorCode::kModelLoadFailed,
                      fmt::format("the host has no {} bytes of memory to lock for copies to and from {}; free some",
                                  staged, driver.info().name));
  }
  return std::unique_ptr<CudaDeviceSampler>(
      new CudaDeviceSampler(limits, driver, stream, std::move(memory), std::move(staging)));
}

CudaDeviceSampler::CudaDeviceSampler(const DrawLimits& limits, Driver& driver, const CudaStream& stream,
                                     plan::DeviceBuffer memory, std::unique_ptr<Staging> staging)
    : limits_(limits),
      driver_(driver),
      stream_(stream),
      memory_(std::move(memory)),
      arrays_(WorkspaceArena({.ptr = memory_.data(), .bytes = memory_.size_bytes()}), limits),
      staging_(std::move(staging)),
      event_(driver.make_event()) {}

CudaDeviceSampler::~CudaDeviceSampler() {
  if (!waited_) driver_.wait(*event_);
}

std::uint64_t CudaDeviceSampler::stage(std::span<const RowDraw> draws) noexcept {
  std::byte* const base = staging_->bytes().data();
  auto* const to = reinterpret_cast<DeviceDraw*>(base);
  auto* const edits = reinterpret_cast<RowEdit*>(base + edits_at(draws.size()));
  std::uint32_t edits_count = 0, words_count = 0;
  for (std::size_t i = 0; i < draws.size(); ++i) {
    const RowDraw& draw = draws[i];
    ASSERT(draw.edits.size() <= limits_.edits_max && draw.temperature >= 0.0f && draw.uniform >= 0.0f &&
               draw.uniform < 1.0f,
           "edits={} temperature={} uniform={}", draw.edits.size(), draw.temperature, draw.uniform);
    std::ranges::copy(draw.edits, edits + edits_count);
    to[i] = {.row = draw.row,
             .edits_begin = edits_count,
             .edits_end = edits_count + static_cast<std::uint32_t>(draw.edits.size()),
             .temperature = draw.temperature,
             .top_k = draw.top_k,
             .top_p = draw.top_p,
             .min_p = draw.min_p,
             .min_keep = draw.min_keep,
             .uniform = draw.uniform};
    edits_count = to[i].edits_end;
  }
  auto* const masks = reinterpret_cast<std::uint32_t*>(edits + edits_count);
  for (std::size_t i = 0; i < draws.size(); ++i) {
    if (draws[i].allowed.empty()) continue;
    ASSERT(draws[i].allowed.size() == mask_words(limits_), "words={} width={}", draws[i].allowed.size(), limits_.width);
    std::ranges::copy(draws[i].allowed, masks + words_count);
    to[i].mask_begin = words_count;
    words_count += mask_words(limits_);
  }
  masks_begin_ = static_cast<std::uint32_t>(reinterpret_cast<std::byte*>(masks) - base);
  return masks_begin_ + words_count * sizeof(std::uint32_t);
}

void CudaDeviceSampler::draw(float* rows, std::span<const RowDraw> draws) noexcept {
  ASSERT(waited_ && draws.size() <= limits_.rows_max, "waited={} draws={} rows_max={}", waited_, draws.size(),
         limits_.rows_max);
  draws_count_ = static_cast<std::uint32_t>(draws.size());
  if (draws.empty()) return;
  waited_ = false;
  driver_.copy_from_staging(arrays_.sent, staging_->bytes().first(stage(draws)));
  const std::uint32_t chunks = chunks_of(limits_);
  for (std::uint32_t first = 0; first < draws_count_; first += kDrawsAtOnce) {
    const std::uint32_t count = std::min(draws_count_ - first, kDrawsAtOnce);
    const kernels::DrawArgs args{.rows = rows,
                                 .draws = reinterpret_cast<const DeviceDraw*>(arrays_.sent) + first,
                                 .edits = reinterpret_cast<const RowEdit*>(arrays_.sent + edits_at(draws.size())),
                                 .masks = reinterpret_cast<const std::uint32_t*>(arrays_.sent + masks_begin_),
                                 .bests = arrays_.bests,
                                 .keys = arrays_.keys,
                                 .counts = arrays_.counts,
                                 .indices = arrays_.indices,
                                 .drawn = arrays_.drawn + first,
                                 .width = limits_.width,
                                 .chunks = chunks};
    const Grid parts{chunks, count, 1};
    stream_.launch<kernels::DrawEdit>(parts, args);
    const auto by_chance = [](const RowDraw& draw) { return draw.temperature != 0.0f; };
    if (std::ranges::any_of(draws.subspan(first, count), by_chance)) {
      stream_.launch<kernels::DrawSort>(parts, args);
      stream_.launch<kernels::DrawMerge>(parts, args);
    }
    stream_.launch<kernels::DrawWalk>({count, 1, 1}, args);
  }
  const std::span<std::byte> to = staging_->bytes().subspan(drawn_at(limits_), draws.size() * sizeof(RowDrawn));
  driver_.copy_to_staging(to, reinterpret_cast<const std::byte*>(arrays_.drawn));
  driver_.record(*event_);
}

Result<std::span<const RowDrawn>> CudaDeviceSampler::wait() {
  if (!waited_) driver_.wait(*event_);
  waited_ = true;
  if (!driver_.is_healthy()) TRY(driver_.synchronize());
  return std::span(reinterpret_cast<const RowDrawn*>(staging_->bytes().data() + drawn_at(limits_)), draws_count_);
}

}  // namespace llorch::engine::compute::cuda
