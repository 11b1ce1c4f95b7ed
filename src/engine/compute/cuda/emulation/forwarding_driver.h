#pragma once
// A driver that passes everything on: tests override what they want to see or to change.
#include <memory>

#include "engine/compute/cuda/emulation/driver.h"

namespace llorch::engine::compute::cuda::emulation {

class ForwardingDriver : public Driver {
 public:
  explicit ForwardingDriver(std::unique_ptr<Driver> inner) : inner_(std::move(inner)) {}
  const DeviceInfo& info() const override { return inner_->info(); }
  std::uint64_t free_memory_bytes() override { return inner_->free_memory_bytes(); }
  Residency residency(const std::byte* ptr) override { return inner_->residency(ptr); }
  std::byte* malloc(std::uint64_t bytes) override { return inner_->malloc(bytes); }
  void free(std::byte* ptr) noexcept override { inner_->free(ptr); }
  void copy_to_device(std::byte* device, std::span<const std::byte> host) noexcept override {
    inner_->copy_to_device(device, host);
  }
  void copy_to_host(std::span<std::byte> host, const std::byte* device) noexcept override {
    inner_->copy_to_host(host, device);
  }
  void copy_on_device(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept override {
    inner_->copy_on_device(to, from, bytes);
  }
  void zero(std::byte* device, std::uint64_t bytes) noexcept override { inner_->zero(device, bytes); }
  std::unique_ptr<Staging> make_staging(std::uint64_t bytes) override { return inner_->make_staging(bytes); }
  std::unique_ptr<Event> make_event() override { return inner_->make_event(); }
  std::unique_ptr<Event> make_timed_event() override { return inner_->make_timed_event(); }
  double seconds_between(Event& from, Event& to) override { return inner_->seconds_between(from, to); }
  void copy_from_staging(std::byte* device, std::span<const std::byte> staged) noexcept override {
    inner_->copy_from_staging(device, staged);
  }
  void copy_to_staging(std::span<std::byte> staged, const std::byte* device) noexcept override {
    inner_->copy_to_staging(staged, device);
  }
  void record(Event& event) noexcept override { inner_->record(event); }
  void wait(Event& event) noexcept override { inner_->wait(event); }
  std::uint32_t* arrival_counters() noexcept override { return inner_->arrival_counters(); }
  void launch(kernels::KernelId kernel, const Grid& grid, const void* args) noexcept override {
    inner_->launch(kernel, grid, args);
  }
  std::unique_ptr<Graph> make_graph(std::span<const Launch> launches) noexcept override {
    return inner_->make_graph(launches);
  }
  void launch(Graph& graph) noexcept override { inner_->launch(graph); }
  bool is_healthy() const noexcept override { return inner_->is_healthy(); }
  base::Result<> synchronize() override { return inner_->synchronize(); }

 private:
  std::unique_ptr<Driver> inner_;
};

}  // namespace llorch::engine::compute::cuda::emulation
