#include "pool_managerd/staging/staging.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/log.h"

namespace llorch::pool_managerd::staging {
namespace {

// Between two looks at whether somebody wants it to end; whole pages.
constexpr std::int64_t kPieceBytes = 32 << 20;
constexpr std::size_t kReadBytes = 1 << 20;

}  // namespace

// A file whose first pages are held. The mapping is for the system's bookkeeping: nothing is read through it.
class Staging::HeldFile {
 public:
  static base::Result<std::unique_ptr<HeldFile>> open(const HeldPart& part) {
    const std::filesystem::path& path = part.path;
    auto out = std::unique_ptr<HeldFile>(new HeldFile);
    out->fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat facts {};
    if (out->fd_ < 0 || ::fstat(out->fd_, &facts) != 0) return base::fail(base::io_error("cannot read", path, errno));
    out->bytes_ = std::min<std::int64_t>(facts.st_size, part.bytes_max);
    if (out->bytes_ == 0) return out;
    void* data = ::mmap(nullptr, static_cast<std::size_t>(out->bytes_), PROT_READ, MAP_SHARED, out->fd_, 0);
    if (data == MAP_FAILED) return base::fail(base::io_error("cannot map", path, errno));
    out->data_ = static_cast<char*>(data);
    return out;
  }
  HeldFile(const HeldFile&) = delete;
  HeldFile& operator=(const HeldFile&) = delete;
  ~HeldFile() {
    if (data_ != nullptr) ::munmap(data_, static_cast<std::size_t>(bytes_));  // and its locks
    if (fd_ >= 0) ::close(fd_);
  }

  std::int64_t bytes() const { return bytes_; }
  // Reads and locks from `begin` on; false: the system lets nobody lock so much.
  bool lock(std::int64_t begin, std::int64_t bytes) const {
    return ::mlock(data_ + begin, static_cast<std::size_t>(bytes)) == 0;
  }
  // Reads into the system's cache, which may forget it. False: it cannot be read.
  bool read(std::int64_t begin, std::int64_t bytes, std::vector<char>& scratch) const {
    scratch.resize(kReadBytes);
    while (bytes > 0) {
      const auto piece = std::min<std::int64_t>(bytes, static_cast<std::int64_t>(scratch.size()));
      const ssize_t got = ::pread(fd_, scratch.data(), static_cast<std::size_t>(piece), begin);
      if (got <= 0) return false;
      begin += got;
      bytes -= got;
    }
    return true;
  }

 private:
  HeldFile() = default;

  int fd_ = -1;
  char* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

std::int64_t Staging::Model::held_bytes() const {
  return reading ? std::min(facts.bytes_total, facts.bytes + kPieceBytes) : 0;
}

void Staging::stop() {
  const std::lock_guard lock(state_->mutex);
  state_->stopped = true;
}

Staging::Order Staging::order(const std::string& model_ref) {
  const std::lock_guard lock(state_->mutex);
  std::erase_if(orders_, [](const auto& entry) { return entry.second.expired(); });
  auto out = std::make_shared<std::atomic<bool>>(true);
  orders_.emplace(model_ref, out);
  return out;
}

base::Result<wire::StagedModel> Staging::stage(const std::string& model_ref, const std::vector<HeldPart>& parts,
                                               const Order& order) {
  {
    const std::lock_guard lock(state_->mutex);
    const auto it = state_->models.find(model_ref);
    if (it != state_->models.end() && it->second->parts == parts) return it->second->facts;
  }
  const auto model = std::make_shared<Model>();
  model->facts = {.model_ref = model_ref, .locked = true};
  model->parts = parts;
  for (const HeldPart& part : parts) {
    model->files.push_back(TRY(HeldFile::open(part)));
    model->facts.bytes_total += model->files.back()->bytes();
  }
  ModelPtr before;  // its files are let go of without the lock
  std::unique_lock lock(state_->mutex);
  if (order != nullptr && !*order) return base::fail(base::ErrorCode::kCancelled, "the model was unstaged meanwhile");
  const auto it = state_->models.find(model_ref);
  // Its own earlier read ends before the new one begins.
  const std::int64_t still_held = state_->bytes_still_held(model_ref);
  std::int64_t available = options_.bytes_max - still_held;
  for (const auto& [ref, staged] : state_->models)
    if (ref != model_ref) available -= staged->facts.bytes_total;
  if (model->facts.bytes_total > available) {
    return base::fail(base::Error{base::ErrorCode::kConflict,
                                  fmt::format("the model does not fit into the host memory for staging beside what is "
                                              "staged{}; pool-managerd.staging_bytes_max bounds it",
                                              still_held > 0 ? " and what was, whose disk has not answered yet" : ""),
                                  {}}
                          .with("required_bytes", model->facts.bytes_total)
                          .with("available_bytes", std::max<std::int64_t>(0, available)));
  }
  if (it != state_->models.end()) {
    before = std::move(it->second);
    state_->drop(before);
  }
  state_->models.insert_or_assign(model_ref, model);
  wire::StagedModel out = model->facts;
  lock.unlock();  // for a refusal is told within the call below
  options_.reads->read<bool>(
      model_ref, [state = state_, model] { return state->read(*model); },
      [state = state_, model, on_change = options_.on_change](const base::Result<bool>& read) {
        if (!read) state->forget(model);
        if (on_change) on_change();
      });
  return out;
}

void Staging::unstage_all(const std::string& begin) {
  std::set<std::string> wanted;
  {
    const std::lock_guard lock(state_->mutex);
    for (const auto& [ref, order] : orders_) wanted.insert(ref);
    for (const auto& [ref, model] : state_->models) wanted.insert(ref);
  }
  for (const std::string& ref : wanted)
    if (ref.starts_with(begin)) unstage(ref);
}

bool Staging::unstage(const std::string& model_ref) {
  ModelPtr gone;  // its files are let go of without the lock
  const std::lock_guard lock(state_->mutex);
  const auto [begin, end] = orders_.equal_range(model_ref);
  for (auto order = begin; order != end; ++order) {
    if (const auto holds = order->second.lock()) *holds = false;
  }
  orders_.erase(begin, end);
  const auto it = state_->models.find(model_ref);
  if (it == state_->models.end()) return false;
  gone = it->second;
  state_->drop(gone);
  state_->models.erase(it);
  return true;
}

std::vector<wire::StagedModel> Staging::list() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<wire::StagedModel> out;
  for (const auto& [ref, model] : state_->models) out.push_back(model->facts);
  return out;
}

void Staging::State::drop(const ModelPtr& model) {
  model->dropped = true;
  if (model->reading) dropped.push_back(model);
}

std::int64_t Staging::State::bytes_still_held(const std::string& besides) {
  std::int64_t out = 0;
  std::erase_if(dropped, [&](const std::weak_ptr<const Model>& weak) {
    const auto model = weak.lock();
    if (model == nullptr || !model->reading) return true;
    if (model->facts.model_ref != besides) out += model->held_bytes();
    return false;
  });
  return out;
}

bool Staging::State::goes_on(const Model& model) {
  const std::lock_guard lock(mutex);
  return !stopped && !model.dropped;
}

// Nobody has dropped it: what was ordered cannot be held.
void Staging::State::forget(const ModelPtr& model) {
  {
    const std::lock_guard lock(mutex);
    if (model->dropped) return;
    models.erase(model->facts.model_ref);
  }
  base::log_event(base::LogLevel::kWarn, "staging_failed", {}, "A model could not be read into memory.", {});
}

base::Result<bool> Staging::State::read(Model& model) {
  {
    const std::lock_guard lock(mutex);
    if (stopped || model.dropped) return false;
    model.reading = true;
  }
  auto out = read_files(model);
  const std::lock_guard lock(mutex);
  model.reading = false;
  return out;
}

base::Result<bool> Staging::State::read_files(Model& model) {
  bool locks = true;
  std::vector<char> scratch;
  for (const auto& file : model.files) {
    for (std::int64_t begin = 0; begin < file->bytes();) {
      if (!goes_on(model)) return false;
      const std::int64_t bytes = std::min(kPieceBytes, file->bytes() - begin);
      locks = locks && file->lock(begin, bytes);
      if (!locks && !file->read(begin, bytes, scratch)) {
        return base::fail(base::ErrorCode::kIoError, "the model's file cannot be read");
      }
      base::FileReads::progressed();
      begin += bytes;
      const std::lock_guard lock(mutex);
      model.facts.bytes += bytes;
      model.facts.locked = locks;
      model.reading = model.facts.bytes < model.facts.bytes_total;
    }
  }
  base::log_event(locks ? base::LogLevel::kInfo : base::LogLevel::kWarn, "model_staged", {},
                  locks ? "A model is in the host's memory."
                        : "A model was read, but the system may take its memory back: it lets pool-managerd lock less "
                          "(ulimit -l, LimitMEMLOCK=).",
                  {{"bytes", model.facts.bytes_total}, {"locked", locks}});
  return true;
}

}  // namespace llorch::pool_managerd::staging
