#pragma once
// The inside of FaultyDisk, shared by its file door and its VFS.
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/entropy.h"
#include "orchestratord/store/testing/faulty_disk.h"

struct sqlite3_vfs;

namespace llorch::orchestratord::store::testing {

class DiskDice {
 public:
  explicit DiskDice(std::uint64_t seed) : entropy_(seed) {}
  // [0, n). REQUIRES 0 < n < 2^32.
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(((entropy_.next_u64() >> 32) * static_cast<std::uint64_t>(n)) >> 32);
  }

 private:
  base::SeededEntropy entropy_;
};

struct Change {
  std::size_t offset = 0;  // of the bytes; or the new size
  std::string bytes;
  bool truncate = false;
};

// One file. `durable` is what the medium holds; `pending` is what was written since, in order.
struct Node {
  std::string now, durable;
  std::vector<Change> pending;

  void write(std::size_t offset, std::string_view bytes);
  void truncate(std::size_t size);
  void land_all();
  void land_some(DiskDice& dice);

 private:
  void land(const Change& change, std::size_t from, std::size_t to);
};
using NodePtr = std::shared_ptr<Node>;

enum class Outcome { kDone, kShort, kFull, kError };

// Its members want `mutex`.
struct DiskState {
  static constexpr std::int64_t kForever = FaultyDisk::kForever;

  explicit DiskState(std::uint64_t seed) : dice(seed) {}

  Outcome write(Node& node, std::size_t offset, std::string_view bytes);
  Outcome sync(Node& node);
  Outcome truncate(Node& node, std::size_t size);
  // kShort: the file ends before `out` does; the rest is zeros.
  Outcome read(const Node& node, std::size_t offset, std::span<char> out);
  NodePtr open(const std::string& name, bool create);
  bool fails(std::initializer_list<Fault> kinds);
  bool dies();
  std::string_view part(std::string_view bytes, bool maybe_all);

  std::mutex mutex;
  DiskDice dice;
  std::map<std::string, NodePtr, std::less<>> entries, durable_entries;
  FaultyDisk::Plan plan;
  std::int64_t failures = 0;
  std::int64_t die_after = kForever;
  bool dead = false;
  std::vector<std::string> forbidden;
  bool seen = false;
  std::string never_synced;
  std::string vfs_name;
  std::unique_ptr<sqlite3_vfs, void (*)(sqlite3_vfs*)> vfs{nullptr, nullptr};
};

void register_vfs(DiskState& state);
void unregister_vfs(DiskState& state);

}  // namespace llorch::orchestratord::store::testing
