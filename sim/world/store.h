#pragma once
// orchestratord's side of the disk: group commits that take time, fail and are cut by a crash.
#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"
#include "orchestratord/jobs/ids.h"
#include "sim/world/disk.h"

namespace llorch::sim {

struct World;

class Store {
 public:
  using Done = std::function<void(std::vector<orchestratord::jobs::CommitId>, std::optional<base::Error>)>;
  // `done` runs in orchestratord's process, once per commit.
  Store(World& world, Done done) : world_(world), done_(std::move(done)) {}

  void admit(orchestratord::jobs::CommitId commit, Row row);
  void change(orchestratord::jobs::CommitId commit, RowChange change);
  // orchestratord dies now.
  void crash();

 private:
  struct Write {
    orchestratord::jobs::CommitId commit;
    std::optional<Row> admission;
    std::optional<RowChange> change;
  };
  using Batch = std::vector<Write>;

  void post(Write write);
  void begin();
  void end();
  void apply(const Batch& batch);
  void apply(const RowChange& change);

  World& world_;
  Done done_;
  Batch waiting_, committing_;
  bool busy_ = false;
  Batch limbo_;  // endings of refused commits: a crash may find them written
};

}  // namespace llorch::sim
