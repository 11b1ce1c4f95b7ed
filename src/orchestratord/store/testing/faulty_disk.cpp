#include "orchestratord/store/testing/faulty_disk.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "base/entropy.h"
#include "orchestratord/store/testing/disk_state.h"

namespace llorch::orchestratord::store::testing {
namespace {

constexpr std::size_t kSectorBytes = 512;

base::Error refused(const char* what) { return {base::ErrorCode::kStoreUnavailable, what, {}}; }

}  // namespace

// ---- nodes ----------------------------------------------------------------------------------------------------------

void Node::write(std::size_t offset, std::string_view bytes) {
  if (bytes.empty()) return;
  if (now.size() < offset + bytes.size()) now.resize(offset + bytes.size());
  now.replace(offset, bytes.size(), bytes);
  pending.push_back({offset, std::string(bytes), false});
}

void Node::truncate(std::size_t size) {
  now.resize(size);
  pending.push_back({size, {}, true});
}

void Node::land(const Change& change, std::size_t from, std::size_t to) {
  if (from >= to) return;
  if (durable.size() < to) durable.resize(to);
  durable.replace(from, to - from, change.bytes, from - change.offset, to - from);
}

void Node::land_all() {
  for (const Change& change : pending) {
    if (change.truncate) {
      durable.resize(change.offset);
    } else {
      land(change, change.offset, change.offset + change.bytes.size());
    }
  }
  pending.clear();
}

// Each sector has got as far as its own number of changes, or all of them as far as one.
void Node::land_some(DiskDice& dice) {
  const auto count = static_cast<std::int64_t>(pending.size());
  const std::int64_t style = dice.below(4);
  if (style == 0) return;
  if (style == 1) return land_all();
  const std::int64_t common = dice.below(count + 1);
  std::map<std::size_t, std::int64_t> reached;
  const auto reached_by = [&](std::size_t sector) {
    if (style == 2) return common;
    const auto [it, is_new] = reached.try_emplace(sector);
    if (is_new) it->second = dice.below(count + 1);
    return it->second;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    const Change& change = pending[static_cast<std::size_t>(i)];
    if (change.truncate) {
      if (i < common) durable.resize(change.offset);
      continue;
    }
    const std::size_t end = change.offset + change.bytes.size();
    for (std::size_t at = change.offset; at < end;) {
      const std::size_t sector = at / kSectorBytes;
      const std::size_t sector_end = std::min(end, (sector + 1) * kSectorBytes);
      const std::int64_t limit = reached_by(sector);
      if (i < limit) land(change, at, sector_end);
      if (i == limit)
        land(change, at, at + static_cast<std::size_t>(dice.below(static_cast<std::int64_t>(sector_end - at) + 1)));
      at = sector_end;
    }
  }
}

// ---- the disk's state -----------------------------------------------------------------------------------------------

bool DiskState::fails(std::initializer_list<Fault> kinds) {
  if (std::find(kinds.begin(), kinds.end(), plan.fault) == kinds.end()) return false;
  if (plan.after > 0) return --plan.after, false;
  if (plan.times == 0) return false;
  if (plan.times != kForever) --plan.times;
  ++failures;
  return true;
}

bool DiskState::dies() {
  if (dead || die_after == kForever) return false;
  return dead = die_after-- <= 0;
}

std::string_view DiskState::part(std::string_view bytes, bool maybe_all) {
  const auto n = static_cast<std::int64_t>(bytes.size());
  return bytes.substr(0, static_cast<std::size_t>(dice.below(maybe_all ? n + 1 : n)));
}

Outcome DiskState::write(Node& node, std::size_t offset, std::string_view bytes) {
  if (dead) return Outcome::kError;
  for (const std::string& needle : forbidden) seen |= bytes.find(needle) != std::string_view::npos;
  const bool full = plan.fault == Fault::kFull;
  const bool dying = dies();
  if (dying || fails({Fault::kFull, Fault::kWrite, Fault::kIo})) {
    node.write(offset, part(bytes, !full));
    return full && !dying ? Outcome::kFull : Outcome::kError;
  }
  node.write(offset, bytes);
  return Outcome::kDone;
}

Outcome DiskState::sync(Node& node) {
  if (dead || dies()) return Outcome::kError;
  if (const auto it = entries.find(never_synced); it != entries.end() && it->second.get() == &node)
    return Outcome::kDone;
  if (fails({Fault::kSync, Fault::kIo})) {
    node.land_some(dice);
    if (dice.below(4) > 0) node.pending.clear();
    return Outcome::kError;
  }
  node.land_all();
  return Outcome::kDone;
}

Outcome DiskState::truncate(Node& node, std::size_t size) {
  if (dead || dies()) return Outcome::kError;
  node.truncate(size);
  return Outcome::kDone;
}

Outcome DiskState::read(const Node& node, std::size_t offset, std::span<char> out) {
  if (dead) return Outcome::kError;
  const std::size_t there = offset < node.now.size() ? std::min(out.size(), node.now.size() - offset) : 0;
  const bool broken = fails({Fault::kRead});
  const std::size_t n = broken ? part(std::string_view(out.data(), there), true).size() : there;
  std::memcpy(out.data(), node.now.data() + (n > 0 ? offset : 0), n);
  std::memset(out.data() + n, 0, out.size() - n);
  if (broken) return Outcome::kError;
  return there == out.size() ? Outcome::kDone : Outcome::kShort;
}

NodePtr DiskState::open(const std::string& name, bool create) {
  if (const auto it = entries.find(name); it != entries.end()) return it->second;
  if (!create || dead) return nullptr;
  return entries[name] = std::make_shared<Node>();
}

// ---- the door -------------------------------------------------------------------------------------------------------

namespace {
class DoorFile final : public files::StateFile {
 public:
  DoorFile(DiskState& state, NodePtr node) : state_(state), node_(std::move(node)) {}
  base::Result<std::uint64_t> size() override {
    const std::lock_guard lock(state_.mutex);
    return node_->now.size();
  }
  base::Result<> read(std::uint64_t offset, std::span<std::uint8_t> out) override {
    const std::lock_guard lock(state_.mutex);
    return answer(state_.read(*node_, offset, {reinterpret_cast<char*>(out.data()), out.size()}), "cannot read");
  }
  base::Result<> write(std::uint64_t offset, std::span<const std::uint8_t> bytes) override {
    const std::lock_guard lock(state_.mutex);
    return answer(state_.write(*node_, offset, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}),
                  "cannot write");
  }
  base::Result<> sync() override {
    const std::lock_guard lock(state_.mutex);
    return answer(state_.sync(*node_), "cannot sync");
  }

 private:
  static base::Result<> answer(Outcome outcome, const char* what) {
    if (outcome == Outcome::kDone) return {};
    return base::fail(refused(what));
  }
  DiskState& state_;
  const NodePtr node_;
};
}  // namespace

FaultyDisk::FaultyDisk(std::uint64_t seed) : state_(std::make_unique<DiskState>(seed)) { register_vfs(*state_); }

FaultyDisk::FaultyDisk(std::uint64_t seed, const FaultyDisk& content) : FaultyDisk(seed) {
  for (const auto& [name, node] : content.state_->entries) {
    const auto copy = std::make_shared<Node>();
    copy->now = copy->durable = node->now;
    state_->entries[name] = state_->durable_entries[name] = copy;
  }
}

FaultyDisk::~FaultyDisk() { unregister_vfs(*state_); }

const std::string& FaultyDisk::sqlite_vfs() const { return state_->vfs_name; }

files::OpenFile FaultyDisk::door() {
  return [&state = *state_](const std::filesystem::path& path) -> base::Result<files::StateFilePtr> {
    const std::lock_guard lock(state.mutex);
    if (state.dead) return base::fail(refused("cannot open"));
    const NodePtr node = state.open(path.string(), true);
    state.durable_entries[path.string()] = node;  // as open_state_file does
    return files::StateFilePtr(std::make_unique<DoorFile>(state, node));
  };
}

void FaultyDisk::fail(const Plan& plan) {
  const std::lock_guard lock(state_->mutex);
  state_->plan = plan;
  state_->failures = 0;
}

std::int64_t FaultyDisk::failures() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failures;
}

void FaultyDisk::die_after(std::int64_t changes) {
  const std::lock_guard lock(state_->mutex);
  state_->die_after = changes;
}

void FaultyDisk::die() {
  const std::lock_guard lock(state_->mutex);
  state_->dead = true;
}

bool FaultyDisk::dead() const {
  const std::lock_guard lock(state_->mutex);
  return state_->dead;
}

void FaultyDisk::restart(Crash crash) {
  const std::lock_guard lock(state_->mutex);
  state_->dead = false;
  state_->die_after = kForever;
  if (crash == Crash::kKill) return;
  std::map<std::string, NodePtr, std::less<>> left;
  for (const auto* side : {&state_->entries, &state_->durable_entries}) {
    for (const auto& [name, node] : *side) {
      if (left.contains(name) || state_->dice.below(2) == 0) continue;
      left[name] = node;
    }
  }
  // An entry that is the same on both sides is not in question.
  for (const auto& [name, node] : state_->entries) {
    const auto durable = state_->durable_entries.find(name);
    if (durable != state_->durable_entries.end() && durable->second == node) left[name] = node;
  }
  for (const auto& [name, node] : left) {
    node->land_some(state_->dice);
    node->pending.clear();
    node->now = node->durable;
  }
  state_->entries = left;
  state_->durable_entries = std::move(left);
}

std::string FaultyDisk::content(std::string_view name) const {
  const std::lock_guard lock(state_->mutex);
  const auto it = state_->entries.find(name);
  return it == state_->entries.end() ? std::string() : it->second->now;
}

bool FaultyDisk::holds(std::string_view name, std::string_view bytes) const {
  const std::lock_guard lock(state_->mutex);
  for (const auto* side : {&state_->entries, &state_->durable_entries}) {
    const auto it = side->find(name);
    if (it == side->end()) continue;
    const Node& node = *it->second;
    if (node.now.find(bytes) != std::string::npos || node.durable.find(bytes) != std::string::npos) return true;
    for (const Change& change : node.pending) {
      if (change.bytes.find(bytes) != std::string::npos) return true;
    }
  }
  return false;
}

void FaultyDisk::forbid(std::string bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->forbidden.push_back(std::move(bytes));
}

void FaultyDisk::ignore_syncs(std::string name) {
  const std::lock_guard lock(state_->mutex);
  state_->never_synced = std::move(name);
}

bool FaultyDisk::forbidden_seen() const {
  const std::lock_guard lock(state_->mutex);
  return state_->seen;
}

}  // namespace llorch::orchestratord::store::testing
